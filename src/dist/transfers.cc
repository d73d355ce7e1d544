#include "dist/transfers.h"

#include <utility>

#include "dist/gpu_landings.h"
#include "dist/row_encoder.h"
#include "job/call.h"
#include "tensor/strided.h"
#include "update/parallel.h"

namespace tkv {

Operation::Push PushOf(const PushSource& source, const CallPtr& call) {
  Operation::Push push;
  if (source.encoded) {
    push.value = *source.encoded;
  } else {
    push.value.bytes = MemoryOf(source.array);
  }
  push.scalars = source.scalars;
  push.rule = source.rule;
  push.step = source.step;
  call->keys.push_back(source.record);
  call->sources.push_back(push.value.bytes);
  return push;
}

Operation::Pull PullOf(const PullTarget& target, const CallPtr& call) {
  Operation::Pull pull;
  pull.ids = target.ids;
  pull.out = {static_cast<std::byte*>(target.landing.HostData()), target.landing.bytes(),
              target.landing.storage()};
  call->keys.push_back(target.record);
  call->targets.push_back(pull.out.bytes());
  return pull;
}

void PrepareFinish(const CallPtr& call, std::vector<PullTarget> targets,
                   std::chrono::nanoseconds patience) {
  const std::shared_ptr<GpuLandings> gpus = targets.empty() ? nullptr : targets[0].gpus;
  std::erase_if(targets, [](const PullTarget& target) { return target.outs.empty(); });
  if (targets.empty() && gpus == nullptr) return;
  for (const PullTarget& target : targets) {
    for (const NDArray& out : target.outs) call->targets.push_back(MemoryOf(out));
  }
  if (gpus != nullptr) {
    for (auto& memory : gpus->outputs()) call->targets.push_back({nullptr, 0, std::move(memory)});
    gpus->Enter(patience);
  }
  call->finish = [call = call.get(), gpus, targets = std::move(targets)] {
    for (const PullTarget& target : targets) {
      if (target.order != nullptr) {
        ScatterRows(target);
        continue;
      }
      for (const NDArray& out : target.outs) {
        const NDArray packed = out.contiguous() ? out : NDArray::Empty(out.shape(), out.dtype());
        const TileJob::Output output{packed.data(), packed.dtype()};
        TileJob job;
        job.dtype = target.landing.dtype();
        job.count = static_cast<size_t>(target.landing.size());
        job.value = target.landing.data();
        job.outputs = {&output, 1};
        RunJobs({&job, 1}, 1);
        if (!out.contiguous()) CopyElements(packed, out);
      }
    }
    if (gpus != nullptr) gpus->Run(&call->awaited);
  };
}

std::vector<NDArray> OutputsOf(const std::vector<PullTarget>& targets) {
  std::vector<NDArray> outputs;
  for (const PullTarget& target : targets) {
    // A landing without other outputs is an array of the user; any other landing belongs to the
    // store.
    if (target.outs.empty() && !target.lands_for_gpus) outputs.push_back(target.landing);
    outputs.insert(outputs.end(), target.outs.begin(), target.outs.end());
  }
  return outputs;
}

}  // namespace tkv
