// The update rules that CONTROLs set, and the rounds from which they apply: CONTROL, WITHDRAW.
//
// Uses Replies.

#pragma once

#include "server/replies.h"

namespace tkv {

class Controls {
 public:
  // Makes the controls of a shard, from the shard's other parts.
  Controls(ShardCore* core, Replies* replies) : core_(*core), replies_(*replies) {}

  // Returns true if the body of a CONTROL deserves memory.
  static bool Admits(const Message& message);
  void OnControl(Session* session, const Message& message, Effects* effects);
  void OnWithdraw(Session* session, const Message& message, Effects* effects);

  // Sets the rules that are due at the next round of this chunk, in the order of arrival.  A later
  // rule also replaces an earlier one that was to begin after it.
  void Apply(StoredKey* key, Chunk* chunk);
  // Returns a copy of the chunk with the rule of its next round.  A CONTROL that begins with that
  // round may end the current states.
  Chunk WithDueRule(const StoredKey& key, const Chunk& chunk);
  // Removes the rules that an incarnation sent after `after_generation`, and undoes those in trial.
  void DropRules(Rank rank, uint64_t incarnation, uint64_t after_generation);
  // Returns true if the head knows that the sender of a rule has committed it.
  bool IsCommitted(const Rule& rule) const;
  // Returns true if a rule can no longer be withdrawn.  A committed rule still can while its sender
  // lives: a sender that loses the head before it learns of the commit withdraws the rule.
  bool IsSettled(const Rule& rule) const;

 private:
  ShardCore& core_;
  Replies& replies_;
};

}  // namespace tkv
