// The membership of the job as the newest EPOCH has it, and its history of restarted workers.

#pragma once

#include <cstddef>
#include <set>

#include "server/chunk.h"
#include "wire/message.h"

namespace tkv {

class Membership {
 public:
  // Adopts an EPOCH.  Returns false and changes nothing if the EPOCH is not newer.
  bool Adopt(const Epoch& epoch);
  const Epoch& epoch() const { return epoch_; }
  // Returns the number of ranks that rounds need.
  size_t member_count() const { return member_count_; }
  // Returns true if rounds fail that lack a push of some member, as Epoch::IsGone says.
  bool HasGone() const { return gone_count_ > 0; }

  // Returns true if the sender of a HELLO may have a session: an observer, or a living worker.
  bool IsListed(const Hello& hello) const;
  // Returns true if a sender's incarnation has ended, or a later one has replaced it.
  bool IsOver(Role role, const SessionId& id) const;
  // Returns true if this is the lowest rank that is alive or awaited.
  bool IsLowestRank(Rank rank) const;
  // Returns true if a worker waits for a rank even while the rank is dead.  Under `fail` a worker
  // in its first incarnation does not wait.  A restarted worker does: if two workers died at once,
  // each would otherwise fail while the other one is dead, until no restart is left.
  bool WaitsForLife(const SessionId& waiting, Rank dead) const;

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  Epoch epoch_;
  size_t member_count_ = 0;
  size_t gone_count_ = 0;      // members for which Epoch::IsGone
  std::set<Rank> came_again_;  // ranks with a second incarnation
};

}  // namespace tkv
