// Sums the rows of a push, so that each id occurs once, in order.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "rows/row_source.h"
#include "tkv/dtype.h"

namespace tkv {

// Rows as a caller passes them: in any order, and an id may occur several times.
struct RowList {
  std::span<const int64_t> ids;
  const void* values = nullptr;  // consecutive rows
};

// The names of rows, by which they are ordered: mixes or ids.
enum class RowOrder : uint8_t { kMix, kId };

// A sum of rows, by name.  A value type: copies share the values, which never change.
class SparseSum {
 public:
  enum class Memory : uint8_t { kOwn, kBorrow };

  SparseSum() = default;

  // Sums rows of equal ids in the order of the lists, and within a list in its order.  Reads each
  // id once and checks that copy, since another thread may write to the lists.
  //   row_count  every id must be below it
  //   shape   each row has `row_elements` of `dtype`; the sums are of its compute type
  //   memory  kBorrow: the values stay in the lists, which the caller keeps, unless ids repeat or
  //           values are converted
  //   throws  kInvalidArgument (two rows of one id of a dtype that cannot be summed), kOutOfRange,
  //           std::bad_alloc
  static SparseSum Of(std::span<const RowList> lists, uint64_t row_count, DType dtype,
                      size_t row_elements, RowOrder order, Memory memory = Memory::kOwn);
  // Makes a sum of rows that are in order, each once.
  //   shape   values: consecutive rows, of any alignment
  //   memory  kBorrow: the caller keeps the values, unless they are converted
  //   throws  std::bad_alloc
  static SparseSum OfSorted(std::vector<uint64_t> names, const std::byte* values, DType dtype,
                            size_t row_elements, Memory memory = Memory::kOwn);
  // Returns the rows of both sums; a row that both have becomes a + b.
  //   shape   both have the same dtype, row length and order
  //   throws  std::bad_alloc
  static SparseSum Merge(const SparseSum& a, const SparseSum& b);

  size_t size() const noexcept { return names_.size(); }
  DType dtype() const noexcept { return dtype_; }  // dtype of the sums
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
