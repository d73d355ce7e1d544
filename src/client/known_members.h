// The members of a job, as one of them knows them.

#pragma once

#include <utility>

#include "wire/message.h"

namespace tkv {

struct KnownMembers {
  Role role = Role::kWorker;
  Welcome welcome;  // the head's answer to this member: its rank and incarnation
  Epoch epoch;      // the newest from the head

  bool is_observer() const { return role == Role::kObserver; }
  // Returns the rank that sends the CONTROLs for all workers, and its incarnation: the lowest rank
  // that is alive or whose first life is awaited.  Returns kNoRank if there is none.
  std::pair<Rank, uint64_t> Sender() const;
  // Returns true if this worker is the Sender.
  bool IsSender() const;
  // Returns the rank that reads snapshots and assigns values for all workers, and its incarnation.
  // Under the policy `continue` this is the Sender.  Under `fail` and `wait` it is the lowest rank
  // that can have another life, also while that rank is dead, because barriers wait for it too.
  std::pair<Rank, uint64_t> SnapshotReader() const;
};

}  // namespace tkv
