// The pull of one call of a store of one process.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "store/claim.h"
#include "store/gather.h"
#include "tkv/kvstore.h"
#include "update/gpu_batch.h"

namespace tkv {

// A plan that writes the values of keys to the outputs of one call.
//
// Outputs that overlap are written one after the other, so that the later one wins.
class PullPlan final {
 public:
  // Gathers the outputs.  The claim and the items must outlive the plan.
  //   items   pulls of the claim
  //   blocks  until the outputs can be written, at most the timeout (`patience`)
  PullPlan(const Claim& claim, std::span<const PullItem> items);

  const Outputs& outputs() const { return outputs_; }
  // Returns true if the jobs of the call's push can write the outputs.  Push and pull need the same
  // keys, each once, and no arrays that share memory across keys.
  //   pushes, sources  the items of the push, and their values
  bool CanJoin(std::span<const PushItem> pushes, const Sources& sources) const;

  // Leaves the outputs to the jobs of the push, which runs before Run.
  void JoinPush() { way_ = Way::kByPush; }
  // Decides how Run writes the outputs.  Call either this or JoinPush.
  void Choose();
  // Allocates the resources of GPUs, so that Run needs no more.  Do not call this before a push
  // that replaces the arrays of values; Run then allocates the resources.
  //   throws  as GpuBatches::Prepare
  void Prepare();
  // Writes the outputs.
  //   blocks  at most the timeout
  //   throws  the errors of GPUs, and of Prepare if it was not called
  void Run();

 private:
  enum class Way : uint8_t {
    kUnknown,   // before Choose or JoinPush
    kByPush,    // the push writes the outputs
    kByGpus,    // one launch on each GPU, and the host's keys at once
    kTogether,  // all keys at once, on the host
    kInOrder,   // one output after the other
  };

  bool IsSmall() const;
  bool IsOneByOne() const;
  bool HasConflict(std::span<const PushItem> pushes, const Sources& sources) const;
  void RunTogether() const;
  void RunInOrder() const;

  const Claim& claim_;
  const std::span<const PullItem> items_;
  const Outputs outputs_;
  Way way_ = Way::kUnknown;
  std::optional<GpuBatches> gpus_;  // prepared; only if GPUs write
};

}  // namespace tkv
