#include "update/gpu_update.h"

#include <algorithm>
#include <vector>

#include "tensor/device_copy.h"
#include "update/gpu_arrays.h"
#include "update/gpu_batch.h"
#include "update/program_body.h"

namespace tkv {
namespace {

// Returns copies of the scalar states in host memory.  The scalar states follow the arrays.
std::vector<NDArray> ScalarStates(std::span<const NDArray> states, size_t arrays) {
  std::vector<NDArray> copies;
  for (const NDArray& state : states.subspan(arrays)) {
    copies.push_back(IsOfDevice(state) ? state.WithContext({}) : state.Copy());
  }
  return copies;
}

}  // namespace

void CopyTheRest(const NDArray& source, const NDArray& target) {
  try {
    target.CopyFrom(source);
  } catch (...) {
    if (IsOfDevice(target)) {
      DeviceOf(target).Lose("copy the rest of an update", cuda::Result::kLaunchFailed);
    }
    throw;
  }
}

void UpdateOnDevice(const CompiledUpdate& update, std::span<const double> params, double round,
                    const NDArray& grad, const NDArray& value, std::span<const NDArray> states,
                    const NDArray& master) {
  const ProgramBody& body = update.program.body();
  const size_t arrays = body.states.size();
  const std::vector<NDArray> scalar_states = ScalarStates(states, arrays);
  std::vector<NDArray> written = {value};
  written.insert(written.end(), states.begin(), states.begin() + static_cast<ptrdiff_t>(arrays));
  if (master) written.push_back(master);
  const NDArray packed = grad.Packed();
  const bool meets = std::ranges::any_of(
      written, [&](const NDArray& array) { return OverlapOnDevice(packed, array); });
  const NDArray source = meets ? packed.Copy() : packed;
  std::vector<void*> pointers;
  for (const NDArray& state : states.first(arrays)) pointers.push_back(state.data());
  for (const NDArray& state : scalar_states) pointers.push_back(state.HostData());
  UpdateScalars scalars = BindScalars(update, params, pointers, round, 1);

  const void* const sources[] = {source.data()};
  TileJob job;
  job.dtype = value.dtype();
  job.count = static_cast<size_t>(value.size());
  job.sources = sources;
  job.value = value.data();
  if (master) job.master = static_cast<float*>(master.data());
  job.update = &update;
  job.scalars = &scalars;
  job.states = pointers;
  GpuBatches batches("");  // the caller adds the verb to errors
  GpuBatch& batch = batches.Of(value);
  batch.Add(job, params, round);
  batch.Reads(source);
  for (const NDArray& array : written) batch.Writes(array);
  batches.Prepare();
  batches.Enter();
  batches.Run();  // all work is one launch, so Update is not needed
  KeepScalars(scalars, pointers);
  for (size_t i = 0; i < scalar_states.size(); ++i) {
    CopyTheRest(scalar_states[i], states[arrays + i]);
  }
}

}  // namespace tkv
