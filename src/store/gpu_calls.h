// What calls of a store do where values are at home on GPUs.

#pragma once

#include <span>
#include <string_view>

#include "store/gather.h"
#include "store/home.h"
#include "tkv/optimizer.h"
#include "update/gpu_batch.h"
#include "update/parallel.h"
#include "update/state.h"

namespace tkv {

// What writes the value of a key to outputs.
inline TileJob PullJob(const Entry& entry, std::span<const TileJob::Output> outputs) {
  TileJob job;
  job.dtype = entry.dtype();
  job.count = static_cast<size_t>(entry.value.size());
  job.value = entry.value.data();
  job.outputs = outputs;
  return job;
}

// Names the arrays that the pull of an item uses on a GPU.
void EnterPull(const Entry& entry, const Outputs& outputs, size_t item, GpuBatch* batch);

// The pulls of a call whose keys are dense, some on GPUs, and whose outputs do not overlap: what is to be
// done on GPUs, prepared.
//   throws  as GpuBatches::Prepare
GpuBatches PullBatches(std::string_view verb, const Claim& claim, std::span<const PullItem> items,
                       const Outputs& outputs);
// Runs them, and those of the host.
//   gpus    as PullBatches makes them
//   blocks  at most the patience
//   throws  as GpuBatches::Enter and Run
void RunPulls(std::string_view verb, const Claim& claim, std::span<const PullItem> items,
              const Outputs& outputs, const StoreOptions& options, GpuBatches* gpus);

// Runs one job where the value of its key is.
//   enter(batch)  names the arrays that it uses on a GPU
template <typename Enter>
void RunAtHome(std::string_view verb, const Entry& entry, const TileJob& job, int threads,
               Enter enter) {
  if (!IsOnGpu(entry)) return RunJobs({&job, 1}, threads);
  GpuBatches gpus(verb);
  GpuBatch& batch = gpus.Of(entry.value);
  batch.Names(entry.key.view());
  batch.Add(job, {}, 0);
  enter(&batch);
  gpus.Prepare();
  gpus.Enter();
  gpus.Run();
}

// The state of a value on a GPU before its first update; scalars are the host's.
UpdateState<NDArray> StateOnGpu(const NDArray& value, const Optimizer& optimizer);

}  // namespace tkv
