// The updater that the servers run for a store, as this worker knows it.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dist/store_core.h"
#include "dist/transfers.h"
#include "store/snapshots.h"
#include "update/cache.h"

namespace tkv {

// Returns an optimizer in the form that servers receive.
inline UpdateSpec SpecOf(const Optimizer& optimizer) {
  return {.program = optimizer.program().ToText(),
          .multi_precision = optimizer.multi_precision(),
          .params = ParamsOf(optimizer),
          .lazy = optimizer.lazy()};
}

class ServerUpdater {
 public:
  // Makes the updater of a store, at first ASSIGN.  The store must outlive it.
  explicit ServerUpdater(StoreCore* core) : core_(*core) {}

  // Makes the servers use an optimizer.  The lowest rank defines it for all; the other ranks only
  // note it.
  //   verb    the first word of errors
  //   blocks  for the servers, at most the patience
  void Set(const std::string& verb, std::shared_ptr<const Optimizer> optimizer);
  // Makes the servers use ASSIGN again.
  //   blocks  as Set
  void Clear(const std::string& verb);

  // ---- call these with the mutex of the store's keys
  // Returns the optimizer of the store; null: ASSIGN.
  const std::shared_ptr<const Optimizer>& optimizer() const { return optimizer_; }
  // Checks that the updater can take values of this key.
  //   throws  kInvalidArgument
  void Check(std::string_view verb, const KeyRecord& record);
  // Adds hyperparameters to a push if the servers may not know them.
  void AddParams(const KeyView& key, PushSource* source) const;

 private:
  bool Control(const std::string& verb, UpdateSpec spec);

  StoreCore& core_;
  // The mutex of the store's keys guards the members below.
  std::shared_ptr<const Optimizer> optimizer_;
  std::vector<double> committed_params_;  // that the servers have
  uint64_t digest_ = 0;                   // of the optimizer
  uint64_t optimizer_number_ = 0;         // counts the calls of Set
  // Another rank has sent the optimizer to the servers.  This one then sends its hyperparameters
  // with the first push of each key, so that the servers can see differences.
  bool is_optimizer_of_other_ = false;
  CompiledUpdates compiled_;
};

}  // namespace tkv
