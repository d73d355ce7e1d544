// Saving and loading of the state that an update function keeps itself, in a store of one process.

#pragma once

#include <functional>
#include <optional>

#include "tkv/api.h"
#include "tkv/kvstore.h"
#include "tkv/ndarray.h"

namespace tkv {

struct UpdaterStates {
  // Returns the states of all keys as bytes, or no value if there are no states.  Called while no
  // key is updated.
  std::function<std::optional<NDArray>()> take;
  // Replaces the states by these; no value removes all states.  Changes nothing if it throws.
  std::function<void(const std::optional<NDArray>&)> put;
};

// A store that saves and loads such states.
class TKV_API SavesUpdaterStates {
 public:
  virtual ~SavesUpdaterStates() = default;
  // The same as KVStore::SetUpdater for a function that keeps these states.
  virtual void SetUpdaterWithStates(UpdateFunction updater, UpdateEnd end, UpdaterStates states,
                                    SumType sums = SumType::kOfKey) = 0;
};

}  // namespace tkv
