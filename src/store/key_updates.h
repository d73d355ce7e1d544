// The updates of keys by an optimizer, in one call of a store of one process.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/small_vector.h"
#include "store/claim.h"
#include "store/key_scalars.h"
#include "tkv/program.h"
#include "update/state.h"
#include "update/tile_driver.h"

namespace tkv {

// The keys of a call whose jobs have run.
enum class Updated : uint8_t { kAll, kOnGpus };

// The states and scalars of the updates of a call.  A key gets its new state only by Keep.
class KeyUpdates final {
 public:
  // The state with which the update of a key continues.
  struct KeyState {
    const std::vector<NDArray>& arrays;
    const NDArray& master;
    double round;  // number of the update
  };

  //   updater  has an optimizer; must outlive the updates
  //   count    number of keys
  KeyUpdates(std::string_view verb, Updater* updater, size_t count);

  // Gives the program, the scalars and the states of an update to the job of a key.  Makes the state
  // if another optimizer has updated the key last.  Keys are bound in the order of their groups.
  //   returns  references, valid until the next Bind
  //   throws   kInvalidArgument, kResourceExhausted, and the errors of GPUs
  KeyState Bind(size_t group, const Entry& entry, TileJob* job);
  // Returns the parameters of the key that was bound last.
  const std::vector<double>& params() const { return bound_.params(); }

  // Stores the states of the keys whose jobs have run, and counts their updates.
  void Keep(std::span<Entry* const> entries, std::span<const TileJob> jobs, Updated updated);

 private:
  struct FreshState {
    size_t group;
    UpdateState<NDArray> state;
  };

  inline KeyState StateOf(size_t group, const Entry& entry);

  const std::string_view verb_;
  Updater& updater_;
  const Optimizer& optimizer_;
  SmallVector<UpdateScalars, 1> scalars_;
  SmallVector<std::array<void*, Program::kStatesMax>, 1> states_;
  std::vector<FreshState> fresh_;  // in the order of groups
  KeyScalars bound_;
};

}  // namespace tkv
