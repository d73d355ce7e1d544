#include "store/gpu_calls.h"

#include <vector>

#include "tkv/ops.h"

namespace tkv {

void EnterPull(const Entry& entry, const Outputs& outputs, size_t item, GpuBatch* batch) {
  batch->Reads(entry.value);
  for (const Lent& one : outputs.lent) {
    if (one.of == item) batch->Writes(one.storage);
  }
}

GpuBatches PullBatches(const Claim& claim, std::span<const PullItem> items,
                       const Outputs& outputs) {
  GpuBatches gpus(claim.verb);
  for (size_t i = 0; i < items.size(); ++i) {
    const Entry& entry = *claim.entries[claim.pull_groups[i]];
    if (!IsOnGpu(entry)) continue;
    GpuBatch& batch = gpus.Of(entry.value);
    batch.Names(entry.key.view());
    batch.Add(PullJob(entry, outputs.of(i)), {}, 0);
    batch.Reads(entry.value);
  }
  for (const Lent& one : outputs.lent) {
    gpus.Of(claim.entries[claim.pull_groups[one.of]]->value).Writes(one.storage);
  }
  gpus.Prepare();
  return gpus;
}

void RunPulls(const Claim& claim, std::span<const PullItem> items, const Outputs& outputs,
              GpuBatches* gpus) {
  std::vector<TileJob> jobs;
  for (size_t i = 0; i < items.size(); ++i) {
    const Entry& entry = *claim.entries[claim.pull_groups[i]];
    if (!IsOnGpu(entry)) jobs.push_back(PullJob(entry, outputs.of(i)));
  }
  gpus->Enter(claim.options.patience);
  RunJobs(jobs, ThreadsFor(claim.options.threads));
  gpus->Run();
  outputs.Scatter(claim.verb);
}

UpdateState<NDArray> StateOnGpu(const NDArray& value, const Optimizer& optimizer) {
  const Program& program = optimizer.program();
  const DType compute = ComputeType(value.dtype());
  UpdateState<NDArray> made;
  for (size_t i = 0; i < program.states().size(); ++i) {
    made.states.push_back(NDArray::Zeros(value.shape(), compute, value.context()));
  }
  for (const Program::ScalarState& scalar : program.scalar_states()) {
    const NDArray state = NDArray::Empty({1}, DType::kF64);
    *static_cast<double*>(state.HostData()) = scalar.initial;
    made.states.push_back(state);
  }
  if (optimizer.multi_precision() && compute != value.dtype())
    made.master = ConvertFloat(value, compute);
  return made;
}

}  // namespace tkv
