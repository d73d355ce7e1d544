// Sums of rows that a push brings: each row once, in order.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "rows/row_source.h"
#include "tkv/dtype.h"

namespace tkv {

// Rows as a caller has them: in any order, some perhaps several times.
struct RowList {
  std::span<const int64_t> ids;
  const void* values = nullptr;  // one row behind the other
};

// What names rows, and in which order they are.
enum class RowOrder : uint8_t { kMix, kId };

// A value type: copies share the values, which nobody changes.
class SparseSum {
 public:
  enum class Memory : uint8_t { kOwn, kBorrow };

  SparseSum() = default;

  // Rows of one id are summed from left to right, those of the first list first.  Each id is read once and
  // looked at then, since another thread may write to the lists.
  //   row_count  ids are below it
  //   shape   each row has `row_elements` of `dtype`; the sums are of its compute type
  //   memory  kBorrow: where no two rows have one id and nothing is converted the values stay in the lists,
  //           which the caller keeps
  //   throws  kInvalidArgument (two rows of one id of a dtype that cannot be summed), kOutOfRange,
  //           std::bad_alloc
  static SparseSum Of(std::span<const RowList> lists, uint64_t row_count, DType dtype,
                      size_t row_elements, RowOrder order, Memory memory = Memory::kOwn);
  // Rows that are in order, each once.
  //   shape   values: one row behind the other, of any alignment
  //   memory  as above
  //   throws  std::bad_alloc
  static SparseSum OfSorted(std::vector<uint64_t> names, const std::byte* values, DType dtype,
                            size_t row_elements, Memory memory = Memory::kOwn);
  // The rows of both, those in both as a + b.
  //   shape   both of one dtype and row, in one order
  //   throws  std::bad_alloc
  static SparseSum Merge(const SparseSum& a, const SparseSum& b);

  size_t size() const noexcept { return names_.size(); }
  DType dtype() const noexcept { return dtype_; }  // of the sums
  // Returns true if some row is the sum of several.
  bool has_sums() const noexcept { return has_sums_; }
  std::span<const uint64_t> names() const noexcept { return names_; }
  RowSource values() const noexcept {
    const size_t row_bytes = row_elements_ * ItemSize(dtype_);
    if (!borrowed_.empty()) return {nullptr, row_bytes, borrowed_.data()};
    return {lent_ != nullptr ? lent_ : values_.data, row_bytes, nullptr};
  }

 private:
  DType dtype_ = DType::kF32;
  size_t row_elements_ = 0;
  bool has_sums_ = false;
  std::vector<uint64_t> names_;  // mixes or ids, strictly ascending
  Block values_;
  std::vector<const void*> borrowed_;
  const std::byte* lent_ = nullptr;
};

}  // namespace tkv
