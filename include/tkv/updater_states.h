// The states that a function keeps which updates the keys of a store of one process.

#pragma once

#include <functional>
#include <optional>

#include "tkv/api.h"
#include "tkv/kvstore.h"
#include "tkv/ndarray.h"

namespace tkv {

struct UpdaterStates {
  // Returns the states of all keys as bytes, none if there are no states.  Called while no key is
  // updated.
  std::function<std::optional<NDArray>()> take;
  // Replaces the states by these, none: by no states.  Changes nothing if it throws.
  std::function<void(const std::optional<NDArray>&)> put;
};

// A store that saves and loads them.
class TKV_API SavesUpdaterStates {
 public:
  virtual ~SavesUpdaterStates() = default;
  // As KVStore::SetUpdater, with the states that the function keeps.
  virtual void SetUpdaterWithStates(UpdateFunction updater, UpdateEnd end, UpdaterStates states,
                                    SumType sums = SumType::kOfKey) = 0;
};

}  // namespace tkv
