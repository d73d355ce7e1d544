#include "rows/row_update.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "base/mix.h"
#include "rows/row_memory.h"

namespace tkv {
namespace {

// Rows with at least so many elements are updated in place, one after another: for them calls cost
// less than copies (bench/rows.cc).
constexpr size_t kInPlaceFrom = 32;

constexpr size_t kTileBytes = kTileElements * sizeof(double);

UpdateScalars Bind(const CompiledUpdate& update, std::span<const double> params,
                   std::span<const double> scalars, double t, double n) {
  const Program& program = update.program;
  if (NeedsWholeValue(program)) {
    throw Fail(Code::kInvalidArgument,
               "'{}' needs norms of whole values, which a key kept by rows does not have",
               program.name());
  }
  if (scalars.empty()) return BindScalars(update, params, {}, t, n);
  std::vector<double> kept(scalars.begin(), scalars.end());
  std::vector<void*> states(program.states().size(), nullptr);
  for (double& scalar : kept) states.push_back(&scalar);
  return BindScalars(update, params, states, t, n);
}

}  // namespace

RowUpdate::RowUpdate(const CompiledUpdate& update, DType dtype, size_t row_elements,
                     std::span<const double> params, std::span<const double> scalars, double t,
                     double n, uint64_t stream)
    : update_(update),
      dtype_(dtype),
      compute_(ComputeType(dtype)),
      elements_(row_elements),
      arrays_(update.program.states().size()),
      stream_(stream),
      draws_(update.program.body().draw_count > 0),
      scalars_(Bind(update, params, scalars, t, n)) {
  const bool is_fused = update.fused != kernels::Fused::kNone;
  const bool is_in_place =
      draws_ || elements_ > kTileElements / 2 || (is_fused && elements_ >= kInPlaceFrom);
  if (!is_in_place) rows_max_ = std::min(kRowsMax, kTileElements / std::max<size_t>(elements_, 1));
  const size_t registers = is_fused ? 0 : scalars_.code->scratch_bytes(kTileElements);
  const size_t gathered = rows_max_ == 1 ? 1 : 2 + arrays_;
  scratch_ = NewRowMemory(registers + gathered * kTileBytes);
  value_ = scratch_.data;
  sum_ = value_ + kTileBytes;
  states_ = sum_ + kTileBytes;
  registers_ = value_ + gathered * kTileBytes;
  zeros_ = NewRowMemory(std::max<size_t>(elements_ * ItemSize(compute_), 1));
  std::memset(zeros_.data, 0, zeros_.size);
}

void RowUpdate::Run(std::span<const RowParts> rows, const void* const* sums,
                    const uint64_t* ids) noexcept {
  if (rows_max_ > 1) return RunGathered(rows, sums);
  for (size_t i = 0; i < rows.size(); ++i) {
    RunInPlace(rows[i], sums[i], ids == nullptr ? 0 : ids[i]);
  }
}

void RowUpdate::RunElements(const void* sum, void* value, std::byte* states, size_t state_bytes,
                            size_t count, const DrawPosition& place) noexcept {
  void* outputs[Program::kStatesMax + 1] = {value};
  const void* inputs[Program::kStatesMax + 2] = {sum, value};
  for (size_t i = 0; i < arrays_; ++i) {
    outputs[i + 1] = states + i * state_bytes;
    inputs[i + 2] = outputs[i + 1];
  }
  if (update_.fused != kernels::Fused::kNone) {
    kernels::UpdateFused(update_.fused, compute_, {scalars_.fused.data(), scalars_.fused_count},
                         sum, value, outputs + 1, count);
  } else {
    RunTile(*scalars_.code, scalars_.rounded.data(), inputs, outputs, registers_, count, nullptr,
            {place, scalars_.values.data()});
  }
}

// Returns the position of the row's draws: the index of its first element among the elements of all
// rows, as in a dense value.  Each 2^64 elements have a stream of their own.  A row that crosses
// such a border continues in its stream, at positions that no other row uses.
DrawPosition RowUpdate::FirstOf(uint64_t id) const noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide first = static_cast<Wide>(id) * elements_;
  return {stream_ ^ Mix(static_cast<uint64_t>(first >> 64)), static_cast<uint64_t>(first)};
}

void RowUpdate::RunInPlace(const RowParts& row, const void* sum, uint64_t id) noexcept {
  const size_t item = ItemSize(dtype_), wide = ItemSize(compute_);
  const DrawPosition first = FirstOf(id);
  for (size_t begin = 0; begin < elements_; begin += kTileElements) {
    const size_t count = std::min(kTileElements, elements_ - begin);
    std::byte* const stored = row.value + begin * item;
    void* value = stored;
    if (row.master != nullptr) {
      value = row.master + begin;
    } else if (compute_ != dtype_) {
      value = value_;
      kernels::Convert(dtype_, stored, compute_, value, count);
    }
    RunElements(static_cast<const std::byte*>(sum) + begin * wide, value, row.states + begin * wide,
                row.state_bytes, count, {first.stream, first.begin + begin});
    if (compute_ != dtype_) kernels::Convert(compute_, value, dtype_, stored, count);
  }
}

void RowUpdate::RunGathered(std::span<const RowParts> rows, const void* const* sums) noexcept {
  const size_t wide = elements_ * ItemSize(compute_);
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowParts& row = rows[i];
    std::memcpy(sum_ + i * wide, sums[i], wide);
    if (row.master != nullptr) {
      std::memcpy(value_ + i * wide, row.master, wide);
    } else if (compute_ == dtype_) {
      std::memcpy(value_ + i * wide, row.value, wide);
    } else {
      kernels::Convert(dtype_, row.value, compute_, value_ + i * wide, elements_);
    }
    for (size_t s = 0; s < arrays_; ++s) {
      std::memcpy(states_ + s * kTileBytes + i * wide, row.states + s * row.state_bytes, wide);
    }
  }
  RunElements(sum_, value_, states_, kTileBytes, rows.size() * elements_, {});
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowParts& row = rows[i];
    if (row.master != nullptr) std::memcpy(row.master, value_ + i * wide, wide);
    if (compute_ == dtype_) {
      std::memcpy(row.value, value_ + i * wide, wide);
    } else {
      kernels::Convert(compute_, value_ + i * wide, dtype_, row.value, elements_);
    }
    for (size_t s = 0; s < arrays_; ++s) {
      std::memcpy(row.states + s * row.state_bytes, states_ + s * kTileBytes + i * wide, wide);
    }
  }
}

}  // namespace tkv
