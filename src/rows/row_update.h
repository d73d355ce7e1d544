// One update of rows: its program, bound to the scalars of a batch, with the memory that it works in.

#pragma once

#include <span>
#include <vector>

#include "base/buffer.h"
#include "update/random.h"
#include "update/tile_driver.h"

namespace tkv {

// The parts of one row, wherever they are.
struct RowParts {
  std::byte* value = nullptr;  // of the key's dtype
  float* master = nullptr;     // or null
  std::byte* states =
      nullptr;  // one array of the compute type behind the other, each `state_bytes`
  size_t state_bytes = 0;
};

// For one thread at a time.
class RowUpdate {
 public:
  //   scalars    the program's scalar states, as they were after the update before; empty: as they start
  //   t, n       as of BindScalars: those of the key, the same for every row
  //   stream     of the key, for draws
  //   owns       `update` stays until this is gone
  //   throws     kInvalidArgument (a program that needs whole values), and as BindScalars does;
  //              std::bad_alloc
  RowUpdate(const CompiledUpdate& update, DType dtype, size_t row_elements,
            std::span<const double> params, std::span<const double> scalars, double t, double n,
            uint64_t stream = 0);

  // The scalar states after it.
  const std::vector<double>& scalars() const noexcept { return scalars_.states; }
  size_t states() const noexcept { return arrays_; }

  bool draws() const noexcept { return draws_; }
  const void* zeros() const noexcept { return zeros_.data; }  // a row of sums

  static constexpr size_t kRowsMax = 256;
  // Rows that one call of Run takes at most.
  size_t rows_max() const noexcept { return rows_max_; }
  // Updates rows by their sums, which are of the compute type.
  //   ids  for draws
  void Run(std::span<const RowParts> rows, const void* const* sums, const uint64_t* ids) noexcept;

 private:
  void RunInPlace(const RowParts& row, const void* sum, uint64_t id) noexcept;
  void RunGathered(std::span<const RowParts> rows, const void* const* sums) noexcept;
  void RunElements(const void* sum, void* value, std::byte* states, size_t state_bytes,
                   size_t count, const DrawPlace& place) noexcept;
  DrawPlace FirstOf(uint64_t id) const noexcept;
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
  std::byte* value_ = nullptr;  // a tile of each
  std::byte* sum_ = nullptr;
  std::byte* states_ = nullptr;
};

}  // namespace tkv
