// A process's tie to the head: joins, says that it lives, keeps the newest EPOCH.  A pure state
// machine, the other side of head.h.

#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "tkv/stats.h"
#include "wire/backoff.h"

namespace tkv {

struct MemberOptions {
  std::string job;
  Role role = Role::kWorker;
  Rank rank = kNoRank;   // of a worker (kNoRank: any free one), index of a server
  uint64_t process = 0;  // tells processes apart; any number but 0
  std::string address;   // of a server: where it listens
  Time ping_every = 1 * kSecond;
  Time dead_after = 5 * kSecond;  // of silence: the connection is given up and made anew
  Protocol protocol;              // that it speaks
  // Who is in the process of the head; -1: none.
  Rank worker_beside_head = -1;
  Rank server_beside_head = -1;

  // Says that it lives often enough for a head that allows so much silence: a process that is
  // stopped for nine tenths of that time may have been about to.
  void AllowSilence(Time silence) {
    dead_after = silence;
    ping_every = std::min(kSecond / 2, silence / 10);
  }
};

class Member {
 public:
  explicit Member(MemberOptions options) : options_(std::move(options)) {}

  void Start(Time now, Effects* effects);
  void Opened(LinkId link, Time now, Effects* effects);
  void Closed(LinkId link, Time now, Effects* effects);
  // The head has taken note of this process's GOODBYE: that it goes away itself is no news.
  void Left() { left_ = true; }
  // The process of the head has ended, and who was in it is lost, with all who have still to come.
  // True where that makes a newer EPOCH, the same in all processes that know of it and have had the
  // last one; no other follows.
  bool HeadEnded();
  // There is no use in trying again.
  void Refuse(const Error& error) { refused_ = error; }
  // True where the message has brought a newer EPOCH.
  bool Received(LinkId link, const Message& message, Time now, Effects* effects);
  // This process has not read for so long, until now: the head may have spoken meanwhile.
  void WasAway(Time away, Time now) { last_heard_ = std::min(now, last_heard_ + away); }
  void Tick(Time now, Effects* effects);
  Time deadline() const;
  // From when on the head counts as silent.
  Time verdict_at() const { return link_ == kNoLink ? kNever : last_heard_ + options_.dead_after; }

  bool joined() const { return welcome_.has_value(); }
  const Welcome& welcome() const { return *welcome_; }
  const Epoch& epoch() const { return epoch_; }
  LinkId link() const { return welcomed_ ? link_ : kNoLink; }  // kNoLink: the head is out of reach
  bool head_has_ended() const { return head_has_ended_; }      // and no other has come in its place
  // The head has said that this life is over, or does not want it.
  const std::optional<Error>& refused() const { return refused_; }
  const char* State() const;  // for the table of coverage
  // Adds the head, as this process sees it, to the peers.
  void AddStats(Time now, StoreStats* stats) const;

 private:
  friend class StateWriter;  // for checks: compares what machines remember
  void Dial(Time now, Effects* effects);
  void CheckEpoch(const Epoch& epoch) const;

  MemberOptions options_;
  LinkId link_ = kNoLink;
  bool welcomed_ = false;  // on this link
  bool left_ = false;
  bool head_has_ended_ = false;
  std::optional<Welcome> welcome_;
  Epoch epoch_;
  std::optional<Error> refused_;
  Time last_heard_ = 0;
  Time next_ping_ = kNever;
  Time next_dial_ = kNever;
  Backoff backoff_;
  Time open_since_ = 0;
  Time lost_since_ = kNever;
  uint64_t welcomes_ = 0;  // connections that have been open
};

}  // namespace tkv
