// Operations of a store on values whose home is a GPU.

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

// Returns a job that writes the value of a key to outputs.
inline TileJob PullJob(const Entry& entry, std::span<const TileJob::Output> outputs) {
  TileJob job;
  job.dtype = entry.dtype();
  job.count = static_cast<size_t>(entry.value.size());
  job.value = entry.value.data();
  job.outputs = outputs;
  return job;
}

// Declares the arrays that the pull of an item uses on a GPU.
void EnterPull(const Entry& entry, const Outputs& outputs, size_t item, GpuBatch* batch);

// Prepares the GPU part of a call's pulls.  The keys are dense, some are on GPUs, and the outputs
// do not overlap.
//   throws  as GpuBatches::Prepare
GpuBatches PullBatches(const Claim& claim, std::span<const PullItem> items, const Outputs& outputs);
// Runs the pulls on GPUs and on the host.
//   gpus    the result of PullBatches
//   blocks  at most the timeout (`patience`)
//   throws  as GpuBatches::Enter and Run
void RunPulls(const Claim& claim, std::span<const PullItem> items, const Outputs& outputs,
              GpuBatches* gpus);

// Runs one job on the device that has its key's value.
//   enter(batch)  declares the arrays that the job uses on a GPU
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

// Returns the state of a value on a GPU before its first update; scalar states are on the host.
UpdateState<NDArray> StateOnGpu(const NDArray& value, const Optimizer& optimizer);

}  // namespace tkv
