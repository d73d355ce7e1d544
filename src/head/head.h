// The head: who takes part, in which life, and who is dead.  It alone decides; everybody else
// follows its EPOCHs.  A pure state machine: no threads, sockets or clocks.

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
  Protocol protocol;              // that it speaks
  bool lives_return = false;      // somebody starts workers again that have died
  // Every EPOCH goes to everybody, so that its bytes grow with the square of a job.  After so many
  // at once the next EPOCH waits until this rate allows it, and tells all that has changed by then.
  size_t epoch_bytes_at_once = size_t{1} << 20;
  size_t epoch_bytes_per_second = size_t{512} << 20;
};

class Head {
 public:
  Head(HeadOptions options, Time now);

  void Received(LinkId link, const Message& message, Time now, Effects* effects);
  void Closed(LinkId link, Time now);
  // The process on the other side of this link is no more.
  void Ended(LinkId link, Effects* effects);
  // Somebody who sees processes end (a launcher) says that this life is over.
  void Exited(Role role, Rank index, uint64_t incarnation, Effects* effects);
  // A launcher has no later life for it: a worker or server that has not joined never will, and
  // nothing waits for the next life of one that is dead.
  void Gone(Role role, Rank index, bool has_failed, Effects* effects);
  // This process has not read for so long, until now, and cannot know who has been silent meanwhile.
  void WasAway(Time away, Time now);
  // Who has been silent for too long is dead.  Everything that had arrived by `now` has been handed
  // over before.
  void Tick(Time now, Effects* effects);
  // The time of the next Tick, or an earlier one at which Tick finds nobody silent and sets a later one.
  Time deadline() const {
    return has_news_ ? std::min(next_announcement_, next_verdict_) : next_verdict_;
  }

  // Returns true if the newest life of this member was ended for its silence and its process may run.
  bool IsSilent(Role role, Rank index) const;

  const Epoch& epoch() const { return epoch_; }
  const char* StateFor(LinkId link) const;  // what a peer is, for the table of coverage

 private:
  friend class StateWriter;  // for checks: compares what machines remember
  struct Life {              // who a link belongs to
    Role role = Role::kWorker;
    Rank index = kNoRank;
    uint64_t incarnation = 0;
  };
  struct Presence {
    Time last_seen = 0;
    uint64_t process = 0;  // Hello::known
    bool rejoined = false;
    bool is_silent = false;  // it was held for dead because of that
  };

  void OnHello(LinkId link, const Message& message, Time now, Effects* effects);
  void OnCommit(const Life& life, const Message& message, LinkId link, Effects* effects);
  void OnGoodbye(const Life& life, const Message& message, LinkId link, Effects* effects);
  void Admit(LinkId link, const Hello& hello, Time now, Effects* effects);
  void Welcome(LinkId link, const Life& life, bool resumed, Effects* effects);
  Message MakeEpoch() const;
  bool Judge(Effects* effects);
  void FindNextVerdict();
  void Announce(Effects* effects);
  void Tell(Effects* effects);
  bool IsCurrent(const Life& life) const;
  Epoch::State Dead(Role role) const;
  Epoch::Seat& SeatOf(Role role, Rank index);
  const Epoch::Seat& SeatOf(Role role, Rank index) const;
  Presence& PresenceOf(Role role, Rank index);

  HeadOptions options_;
  Epoch epoch_;
  uint64_t last_incarnation_ = 0;
  Time now_;                    // of the last event that had a time
  Time next_announcement_ = 0;  // not before
  bool has_news_ = false;       // that wait for it
  Time next_verdict_ = kNever;  // no living member is silent for too long before it
  std::vector<Presence> workers_;
  std::vector<Presence> servers_;
  std::map<LinkId, Life> links_;
};

}  // namespace tkv
