// The coordinator (the "head"): decides which processes are members of the job, in which
// incarnation ("life"), and which are dead.  Only the head decides.  All other processes follow its
// EPOCHs, the messages with the membership.  A pure state machine: no threads, sockets or clocks.
//
// Without memory a function throws std::bad_alloc.  A change of the membership is then made or not
// made, never in part.  The next Tick announces a change that was made.

#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "wire/effects.h"

namespace tkv {

struct HeadOptions {
  std::string job;
  int workers = 1;
  int servers = 1;
  Epoch::Policy policy = Epoch::Policy::kFail;
  Time dead_after = 5 * kSecond;  // of silence
  Protocol protocol;              // the version and features of this process
  bool lives_return = false;      // a launcher restarts workers that have died
  // Every EPOCH is sent to all processes, so its total bytes grow with the square of their number.
  // After an EPOCH of more than `epoch_bytes_at_once`, the next one waits until the rate below
  // allows it.  All changes up to that time are in that EPOCH.
  size_t epoch_bytes_at_once = size_t{1} << 20;
  size_t epoch_bytes_per_second = size_t{512} << 20;
};

class Head {
 public:
  Head(HeadOptions options, Time now);

  void Received(LinkId link, const Message& message, Time now, Effects* effects);
  void Closed(LinkId link, Time now);
  // Declares the member on the other side of this link dead, because its process has ended.
  void Ended(LinkId link, Effects* effects);
  // Declares this life dead, because a launcher saw its process end.  Ignores other lives.
  void Exited(Role role, Rank index, uint64_t incarnation, Effects* effects);
  // Notes that the launcher will not start this member again.  If the member has not joined, it
  // never will.  If a worker is dead, the job no longer waits for its next life.  If a worker's
  // life goes on and its last process has not failed, that process has ended before it joined, and
  // the worker has left.
  void Gone(Role role, Rank index, bool has_failed, Effects* effects);
  // Discounts a time in which this process did not read: nobody counts as silent for that time.
  void WasAway(Time away, Time now);
  // Declares every member dead that was silent for too long, and sends an EPOCH that had to wait.
  // Call it only after all messages received before `now` have been handled.
  void Tick(Time now, Effects* effects);
  // Returns the time of the next Tick.  Tick may find nobody silent then and set a later time.
  Time deadline() const {
    return has_news_ ? std::min(next_announcement_, next_verdict_) : next_verdict_;
  }

  // Returns true if this member's newest life is dead for its silence, so that its process may
  // still run.
  bool IsSilent(Role role, Rank index) const;
  // Returns true if this member's newest life has left.
  bool HasLeft(Role role, Rank index) const {
    return SeatOf(role, index).state == Epoch::State::kLeft;
  }

  // Returns true if a worker takes part now.
  bool IsAnyWorkerAlive() const {
    return std::ranges::any_of(epoch_.workers,
                               [](const auto& seat) { return seat.state == Epoch::State::kAlive; });
  }
  // Returns the number of this member's newest life; 0: it has never joined.
  uint64_t LifeOf(Role role, Rank index) const { return SeatOf(role, index).incarnation; }

  const Epoch& epoch() const { return epoch_; }
  const char* StateFor(LinkId link) const;  // a peer's state, for the table of coverage

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  struct Life {              // the owner of a link: one incarnation of a member
    Role role = Role::kWorker;
    Rank index = kNoRank;
    uint64_t incarnation = 0;
  };
  struct Presence {
    Time last_seen = 0;
    uint64_t process = 0;  // Hello::known
    bool rejoined = false;
    bool is_silent = false;  // it was declared dead for its silence
  };

  void OnHello(LinkId link, const Message& message, Time now, Effects* effects);
  void OnCommit(const Life& life, const Message& message, LinkId link, Effects* effects);
  void OnGoodbye(const Life& life, const Message& message, LinkId link, Effects* effects);
  void Admit(LinkId link, const Hello& hello, Time now, Effects* effects);
  void Welcome(LinkId link, const Life& life, bool resumed, Effects* effects);
  Message MakeEpoch() const;
  bool Judge(Effects* effects);
  void FindNextVerdict();
  void NoteChange();
  template <typename Rest>
  void Announce(Effects* effects, Rest rest);
  void Tell(Effects* effects);
  bool IsCurrent(const Life& life) const;
  Epoch::State Dead(Role role) const;
  Epoch::Seat& SeatOf(Role role, Rank index);
  const Epoch::Seat& SeatOf(Role role, Rank index) const;
  Presence& PresenceOf(Role role, Rank index);

  HeadOptions options_;
  Epoch epoch_;
  uint64_t last_incarnation_ = 0;
  Time now_;                    // time of the last event that had one
  Time next_announcement_ = 0;  // the earliest time of the next EPOCH
  bool has_news_ = false;       // changes wait for the next EPOCH
  Time next_verdict_ = kNever;  // the earliest time at which a living member can be too silent
  std::vector<Presence> workers_;
  std::vector<Presence> servers_;
  std::map<LinkId, Life> links_;
};

}  // namespace tkv
