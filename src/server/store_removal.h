// The stores that workers close.  A store that every worker has closed loses its keys: CLOSE.
//
// Uses Replies, Pulls, Rounds, Describes and KeyCatalog.

#pragma once

#include <cstdint>

#include "server/key_catalog.h"
#include "server/rounds.h"

namespace tkv {

class StoreRemoval {
 public:
  // Makes the removal of a shard's stores, from the shard's other parts.
  StoreRemoval(ShardCore* core, Replies* replies, Pulls* pulls, Rounds* rounds,
               Describes* describes, KeyCatalog* catalog)
      : core_(*core),
        replies_(*replies),
        pulls_(*pulls),
        rounds_(*rounds),
        describes_(*describes),
        catalog_(*catalog) {}

  void OnClose(Session* session, const Message& message, Effects* effects);
  // Updates the half-closed stores after a change of members.  A worker that has ended for good
  // holds no store open, and the CLOSEs of an ended incarnation do not count.
  void Recheck(Effects* effects);

 private:
  // Completes the rounds and answers the operations that need not wait any more, because a worker
  // has closed the store.
  void AnswerWaiting(uint32_t store, Effects* effects);
  // Returns true if every worker that may still use the store has closed it.  Returns false if no
  // such worker is left: the job ends then, and observers may read the last values.
  bool IsClosedByAll(uint32_t store) const;
  // Removes the keys of a store, and all that is kept for it.
  void Remove(uint32_t store, Effects* effects);

  ShardCore& core_;
  Replies& replies_;
  Pulls& pulls_;
  Rounds& rounds_;
  Describes& describes_;
  KeyCatalog& catalog_;
};

}  // namespace tkv
