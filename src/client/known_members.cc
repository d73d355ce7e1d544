#include "client/known_members.h"

namespace tkv {

std::pair<Rank, uint64_t> KnownMembers::Sender() const {
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch.workers.size(); ++rank) {
    const Epoch::Seat& seat = epoch.workers[static_cast<size_t>(rank)];
    if (seat.state == Epoch::State::kAlive || seat.state == Epoch::State::kAwaited) {
      return {rank, seat.incarnation};
    }
  }
  return {kNoRank, 0};
}

bool KnownMembers::IsSender() const {
  const Rank sender = Sender().first;
  return sender != kNoRank && sender == welcome.rank;
}

std::pair<Rank, uint64_t> KnownMembers::SnapshotReader() const {
  if (epoch.policy == Epoch::Policy::kContinue) return Sender();
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch.workers.size(); ++rank) {
    if (!epoch.IsLast(rank)) return {rank, epoch.workers[static_cast<size_t>(rank)].incarnation};
  }
  return {kNoRank, 0};
}

}  // namespace tkv
