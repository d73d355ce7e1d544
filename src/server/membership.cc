#include "server/membership.h"

#include <algorithm>

namespace tkv {

bool Membership::Adopt(const Epoch& epoch) {
  if (epoch.number <= epoch_.number) return false;
  for (size_t i = 0; i < std::min(epoch_.workers.size(), epoch.workers.size()); ++i) {
    const uint64_t known = epoch_.workers[i].incarnation;
    const bool is_next_life = known != 0 && epoch.workers[i].incarnation != known;
    if (is_next_life) came_again_.insert(static_cast<Rank>(i));
  }
  epoch_ = epoch;
  member_count_ = gone_count_ = 0;
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    if (!epoch_.IsMember(rank)) continue;
    ++member_count_;
    gone_count_ += static_cast<size_t>(epoch_.IsGone(rank));
  }
  return true;
}

bool Membership::IsListed(const Hello& hello) const {
  if (hello.role == Role::kObserver) return true;
  if (hello.rank < 0 || static_cast<size_t>(hello.rank) >= epoch_.workers.size()) return false;
  const Epoch::Seat& seat = epoch_.workers[static_cast<size_t>(hello.rank)];
  return seat.incarnation == hello.incarnation && seat.state == Epoch::State::kAlive;
}

bool Membership::IsOver(Role role, const SessionId& id) const {
  if (role == Role::kObserver || id.rank < 0) return false;
  if (static_cast<size_t>(id.rank) >= epoch_.workers.size()) return false;
  const Epoch::Seat& seat = epoch_.workers[static_cast<size_t>(id.rank)];
  return seat.incarnation > id.incarnation || (seat.incarnation == id.incarnation && seat.IsOver());
}

bool Membership::IsLowestRank(Rank rank) const {
  const auto may_act = [](const Epoch::Seat& seat) {
    return seat.state == Epoch::State::kAlive || seat.state == Epoch::State::kAwaited;
  };
  const auto lowest = std::find_if(epoch_.workers.begin(), epoch_.workers.end(), may_act);
  return lowest - epoch_.workers.begin() == rank;
}

bool Membership::WaitsForLife(const SessionId& waiting, Rank dead) const {
  return !epoch_.IsLast(dead) && (!epoch_.IsGone(dead) || came_again_.contains(waiting.rank));
}

}  // namespace tkv
