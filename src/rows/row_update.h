// Updates rows: an update program, bound to the scalars of a batch, with its working memory.

#pragma once

#include <span>
#include <vector>

#include "base/buffer.h"
#include "update/random.h"
#include "update/tile_driver.h"

namespace tkv {

// Pointers to the parts of one row.
struct RowParts {
  std::byte* value = nullptr;  // in the key's dtype
  float* master = nullptr;     // null if the row has no master
  // Consecutive arrays of the compute type, of `state_bytes` each.
  std::byte* states = nullptr;
  size_t state_bytes = 0;
};

// An update program that is ready to run.  At most one thread may use it at a time.
class RowUpdate {
 public:
  //   scalars    the program's scalar states after the previous update; empty: their initial values
  //   t, n       as in BindScalars; those of the key, the same for every row
  //   stream     the key's stream of random draws
  //   owns       `update` must outlive this object
  //   throws     kInvalidArgument (a program that needs whole values), and as BindScalars does;
  //              std::bad_alloc
  RowUpdate(const CompiledUpdate& update, DType dtype, size_t row_elements,
            std::span<const double> params, std::span<const double> scalars, double t, double n,
            uint64_t stream = 0);

  // Returns the scalar states after this update.
  const std::vector<double>& scalars() const noexcept { return scalars_.states; }
  size_t states() const noexcept { return arrays_; }

  bool draws() const noexcept { return draws_; }
  const void* zeros() const noexcept { return zeros_.data; }  // a sum of zero for one row

  static constexpr size_t kRowsMax = 256;
  // Returns how many rows one call of Run takes at most.
  size_t rows_max() const noexcept { return rows_max_; }
  // Updates rows with their sums, which are in the compute type.
  //   ids  for draws; null if the program draws nothing
  void Run(std::span<const RowParts> rows, const void* const* sums, const uint64_t* ids) noexcept;

 private:
  void RunInPlace(const RowParts& row, const void* sum, uint64_t id) noexcept;
  void RunGathered(std::span<const RowParts> rows, const void* const* sums) noexcept;
  void RunElements(const void* sum, void* value, std::byte* states, size_t state_bytes,
                   size_t count, const DrawPosition& place) noexcept;
  DrawPosition FirstOf(uint64_t id) const noexcept;
  size_t row_bytes() const { return elements_ * ItemSize(dtype_); }

  const CompiledUpdate& update_;
  const DType dtype_;
  const DType compute_;
  const size_t elements_;
  const size_t arrays_;
  const uint64_t stream_;
  const bool draws_;
  UpdateScalars scalars_;
  size_t rows_max_ = 1;
  Block zeros_;
  Block scratch_;
  std::byte* registers_ = nullptr;
  std::byte* value_ = nullptr;  // one tile each: value, sum and every state
  std::byte* sum_ = nullptr;
  std::byte* states_ = nullptr;
};

}  // namespace tkv
