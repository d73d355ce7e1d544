// Implements ApplyUpdate: one update of arrays that the caller holds.

#include <algorithm>
#include <functional>
#include <vector>

#include "base/format.h"
#include "tensor/device_copy.h"
#include "tensor/strided.h"
#include "tkv/ndarray.h"
#include "update/gpu_jobs.h"
#include "update/gpu_update.h"
#include "update/parallel.h"
#include "update/tile_driver.h"

namespace tkv {
namespace {

// Throws if two of these contiguous output arrays overlap.
void CheckApart(const KeyView& key, std::vector<const NDArray*> written) {
  std::erase_if(written, [](const NDArray* array) { return array->bytes() == 0; });
  std::sort(written.begin(), written.end(), [](const NDArray* a, const NDArray* b) {
    return std::less<const void*>()(a->data(), b->data());
  });
  for (size_t i = 1; i < written.size(); ++i) {
    const auto* const end =
        static_cast<const std::byte*>(written[i - 1]->data()) + written[i - 1]->bytes();
    if (std::less<const void*>()(written[i]->data(), end)) {
      throw Fail(
          Code::kInvalidArgument,
          "update {}: the weight, its states and its master share memory; each needs its own",
          key.ToString());
    }
  }
}

void CheckTogether(const KeyView& key, const NDArray& value, const NDArray& other) {
  if (other.storage()->memory() == value.storage()->memory()) return;
  throw Fail(Code::kInvalidArgument,
             "update {}: the weight is on {}, and its gradient, a state or its master on {}",
             key.ToString(), value.context().ToString(), other.context().ToString());
}

// Runs an update that no kernel has: on copies in host memory, which are then copied back.
void UpdateByHost(const Optimizer& optimizer, const KeyView& key, double round, const NDArray& grad,
                  const NDArray& value, std::span<const NDArray> states, const NDArray& master) {
  const NDArray weight = value.WithContext({});
  const NDArray wide = master ? master.WithContext({}) : NDArray();
  std::vector<NDArray> kept;
  for (const NDArray& state : states) {
    kept.push_back(IsOfDevice(state) ? state.WithContext({}) : state);
  }
  ApplyUpdate(optimizer, key, round, grad.WithContext({}), weight, kept, wide);
  value.CopyFrom(weight);
  if (master) CopyTheRest(wide, master);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (IsOfDevice(states[i])) CopyTheRest(kept[i], states[i]);
  }
}

}  // namespace

void ApplyUpdate(const Optimizer& optimizer, const KeyView& key, double round, const NDArray& grad,
                 const NDArray& value, std::span<const NDArray> states, const NDArray& master) {
  const DType compute = ComputeType(value.dtype());
  const auto is_state = [&](const NDArray& array) {
    return array.shape() == value.shape() && array.dtype() == compute && array.contiguous() &&
           !array.read_only();
  };
  const auto is_scalar = [](const NDArray& array) {
    return array.size() == 1 && array.dtype() == DType::kF64 && !array.read_only();
  };
  const size_t arrays = optimizer.program().states().size();
  const size_t kept = arrays + optimizer.program().scalar_states().size();
  if (grad.shape() != value.shape() || grad.dtype() != value.dtype() || !value.contiguous() ||
      value.read_only() || states.size() != kept ||
      !std::all_of(states.begin(), states.begin() + static_cast<ptrdiff_t>(arrays), is_state) ||
      !std::all_of(states.begin() + static_cast<ptrdiff_t>(arrays), states.end(), is_scalar) ||
      (master && !(is_state(master) && compute != value.dtype()))) {
    throw Fail(
        Code::kInvalidArgument,
        "update {}: grad, states and weight do not fit; the weight is {} {}, '{}' has {} states",
        key.ToString(), Name(value.dtype()), value.shape().ToString(), optimizer.program().name(),
        kept);
  }
  std::vector<const NDArray*> written{&value};
  for (const NDArray& state : states) written.push_back(&state);
  if (master) written.push_back(&master);
  CheckApart(key, std::move(written));
  CheckTogether(key, value, grad);
  for (const NDArray& state : states.first(arrays)) CheckTogether(key, value, state);
  if (master) CheckTogether(key, value, master);
  const CompiledUpdate update = CompileUpdate(optimizer.program(), value.dtype());
  if (IsOfDevice(value)) {
    const bool has_kernel = HasKernel(optimizer.program());
    return NamedBy([&] { return Format("update {}", key.ToString()); },
                   [&] {
                     if (!has_kernel)
                       return UpdateByHost(optimizer, key, round, grad, value, states, master);
                     UpdateOnDevice(update, optimizer.ParamsFor(key), round, grad, value, states,
                                    master);
                   });
  }
  grad.storage()->WaitReadable();
  value.storage()->WaitWritable();
  for (const NDArray& state : states) state.storage()->WaitWritable();
  if (master) master.storage()->WaitWritable();
  NDArray packed = PackedBeside(grad, value);
  for (const NDArray& state : states) packed = PackedBeside(packed, state);
  if (master) packed = PackedBeside(packed, master);
  const void* source = packed.HostData();
  std::vector<void*> pointers;
  pointers.reserve(states.size());
  for (const NDArray& state : states) pointers.push_back(state.HostData());
  UpdateScalars scalars = BindScalars(update, optimizer.ParamsFor(key), pointers, round, 1);
  TileJob job;
  job.dtype = value.dtype();
  job.count = static_cast<size_t>(value.size());
  job.sources = {&source, 1};
  job.value = value.HostData();
  if (master) job.master = static_cast<float*>(master.HostData());
  job.update = &update;
  job.scalars = &scalars;
  job.states = pointers;
  job.stream = StreamOf(key);
  RunJobs({&job, 1}, ThreadsFor(0));
  KeepScalars(scalars, pointers);
}

}  // namespace tkv
