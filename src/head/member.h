// A process's connection to the head: joins the job, sends heartbeats, keeps the newest EPOCH.  A
// pure state machine, the other side of head.h.

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
  Rank rank = kNoRank;   // of a worker (kNoRank: any free one), or the index of a server
  uint64_t process = 0;  // identifies the process; any number but 0
  std::string address;   // of a server: the address on which it listens
  Time ping_every = 1 * kSecond;
  Time dead_after = 5 * kSecond;  // of the head's silence: the member then connects again
  Protocol protocol;              // the version and features of this process
  // The worker and the server that run in the head's process; -1: none.
  Rank worker_beside_head = -1;
  Rank server_beside_head = -1;

  // Adapts both times to a head that allows this much silence, more than 0.  A process may be
  // suspended for nine tenths of that time just before a ping, so ten pings fit into it.
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
  // Notes that the head has answered this process's GOODBYE: its own end is then expected.
  void Left() { left_ = true; }
  // Handles the end of the head's process.  Members in that process are lost, and so are workers
  // that are dead or have not joined.  Returns true if that makes a newer EPOCH, which is the last.
  // All processes that had the same EPOCH before make the same new one.
  bool HeadEnded();
  // Stops dialing: another attempt would fail too.
  void Refuse(const Error& error) { refused_ = error; }
  // Handles a message of the head.  Returns true if it contains a newer EPOCH.
  bool Received(LinkId link, const Message& message, Time now, Effects* effects);
  // Discounts a time in which this process did not read: the head may have sent messages.
  void WasAway(Time away, Time now) { last_heard_ = std::min(now, last_heard_ + away); }
  void Tick(Time now, Effects* effects);
  Time deadline() const;
  // Returns the time from which the head counts as silent.
  Time verdict_at() const { return link_ == kNoLink ? kNever : last_heard_ + options_.dead_after; }

  bool joined() const { return welcome_.has_value(); }
  const Welcome& welcome() const { return *welcome_; }
  const Epoch& epoch() const { return epoch_; }
  LinkId link() const { return welcomed_ ? link_ : kNoLink; }  // kNoLink: the head is out of reach
  bool head_has_ended() const { return head_has_ended_; }      // and no other head has replaced it
  Time lost_since() const { return lost_since_; }              // kNever: the head is in reach
  // The reason why the head has refused or ended this life, or why dialing is useless.
  const std::optional<Error>& refused() const { return refused_; }
  const char* State() const;  // for the table of coverage
  // Adds the head, as this process sees it, to the peers.
  void AddStats(Time now, StoreStats* stats) const;

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  void Dial(Time now, Effects* effects);
  void CheckEpoch(const Epoch& epoch) const;
  void AdoptSilence(uint64_t nanoseconds, Time now, Effects* effects);

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
  uint64_t welcomes_ = 0;  // connections opened so far
};

}  // namespace tkv
