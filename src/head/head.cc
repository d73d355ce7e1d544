#include "head/head.h"

#include <algorithm>
#include <new>

#include "base/format.h"
#include "wire/hello.h"

namespace tkv {
Head::Head(HeadOptions options, Time now) : options_(std::move(options)), now_(now) {
  epoch_.number = 1;
  epoch_.policy = options_.policy;
  epoch_.workers.resize(static_cast<size_t>(options_.workers));
  epoch_.servers.resize(static_cast<size_t>(options_.servers));
  workers_.resize(epoch_.workers.size(), {now});
  servers_.resize(epoch_.servers.size(), {now});
  epoch_.placement = {1, static_cast<uint32_t>(options_.servers), {}};
}

Epoch::Seat& Head::SeatOf(Role role, Rank index) {
  return (role == Role::kServer ? epoch_.servers : epoch_.workers)[static_cast<size_t>(index)];
}

const Epoch::Seat& Head::SeatOf(Role role, Rank index) const {
  return (role == Role::kServer ? epoch_.servers : epoch_.workers)[static_cast<size_t>(index)];
}

Head::Presence& Head::PresenceOf(Role role, Rank index) {
  return (role == Role::kServer ? servers_ : workers_)[static_cast<size_t>(index)];
}

bool Head::IsCurrent(const Life& life) const {
  if (life.role == Role::kObserver) return true;
  const Epoch::Seat& seat = SeatOf(life.role, life.index);
  // A member that has left may send GOODBYE again, because the answer may have been lost.
  return seat.incarnation == life.incarnation && !seat.IsDead();
}

// Returns the state of a dying member.  A worker can have a next life only if it is restarted.
Epoch::State Head::Dead(Role role) const {
  const bool returns = options_.lives_return || epoch_.policy == Epoch::Policy::kWait;
  return role == Role::kServer || returns ? Epoch::State::kDead : Epoch::State::kLost;
}

bool Head::IsSilent(Role role, Rank index) const {
  const Presence& presence =
      (role == Role::kServer ? servers_ : workers_)[static_cast<size_t>(index)];
  return presence.is_silent && SeatOf(role, index).IsDead();
}

void Head::Received(LinkId link, const Message& message, Time now, Effects* effects) {
  now_ = now;
  if (message.type == Type::kHello) return OnHello(link, message, now, effects);
  if (message.type == Type::kError) return;  // the peer's reason for closing the link
  const auto found = links_.find(link);
  if (found == links_.end()) {
    return effects->Close(link, Code::kUnauthenticated, "HELLO comes first");
  }
  const Life& life = found->second;
  if (!IsCurrent(life)) {
    return effects->Close(link, Code::kAborted,
                          Format("{} {}: this life is over (incarnation {})", Name(life.role),
                                 life.index, life.incarnation));
  }
  if (life.role != Role::kObserver) PresenceOf(life.role, life.index).last_seen = now;
  switch (message.type) {
    case Type::kPing:
      effects->Send(link, Reply(message, Type::kPong, epoch_.number));
      if (message.number < epoch_.number && !has_news_) effects->Send(link, MakeEpoch());
      return;
    case Type::kCommit:
      return OnCommit(life, message, link, effects);
    case Type::kGoodbye:
      return OnGoodbye(life, message, link, effects);
    default:
      effects->Close(link, Code::kInvalidArgument,
                     Format("the head does not take {}", tkv::Name(message.type)));
  }
}

void Head::OnHello(LinkId link, const Message& message, Time now, Effects* effects) {
  const auto hello = ReadHello(link, message, options_.job, options_.protocol, "the head", effects);
  if (!hello) return;
  const auto found = links_.find(link);
  if (found != links_.end()) return Welcome(link, found->second, true, effects);  // a repetition
  Admit(link, *hello, now, effects);
}

void Head::Admit(LinkId link, const Hello& hello, Time now, Effects* effects) {
  if (hello.role == Role::kObserver) {
    const Life life{Role::kObserver, kNoRank,
                    hello.incarnation != 0 ? hello.incarnation : ++last_incarnation_};
    links_[link] = life;
    return Welcome(link, life, hello.incarnation != 0, effects);
  }
  auto& members = hello.role == Role::kServer ? epoch_.servers : epoch_.workers;
  Rank index = hello.rank;
  if (index == kNoRank) {
    auto& presences = hello.role == Role::kServer ? servers_ : workers_;
    const auto again = std::find_if(presences.begin(), presences.end(), [&](const Presence& p) {
      return p.process == hello.known && hello.known != 0;  // its welcome was lost
    });
    auto free = again != presences.end()
                    ? members.begin() + (again - presences.begin())
                    : std::ranges::find(members, Epoch::State::kAwaited, &Epoch::Seat::state);
    if (free == members.end()) free = std::ranges::find_if(members, &Epoch::Seat::IsDead);
    if (free == members.end()) {
      return effects->Close(
          link, Code::kFailedPrecondition,
          Format("HELLO: all {} {}s have joined{}", members.size(), Name(hello.role),
                 hello.role == Role::kWorker ? "; connect looks at a job from outside" : ""));
    }
    index = static_cast<Rank>(free - members.begin());
  }
  if (static_cast<size_t>(index) >= members.size()) {
    return effects->Close(
        link, Code::kFailedPrecondition,
        Format("HELLO: {} {}, the job has {}", Name(hello.role), index, members.size()));
  }
  Epoch::Seat& seat = members[static_cast<size_t>(index)];
  Presence& presence = PresenceOf(hello.role, index);
  Life life{hello.role, index, hello.incarnation};
  const bool same_process = presence.process == hello.known && seat.incarnation != 0;
  if (hello.incarnation == 0 && same_process) life.incarnation = seat.incarnation;
  if (life.incarnation != 0) {
    if (!IsCurrent(life)) {
      return effects->Close(
          link, Code::kAborted,
          Format("HELLO: {} {} incarnation {} is over", Name(hello.role), index, life.incarnation));
    }
    presence.last_seen = now;
    links_[link] = life;
    return Welcome(link, life, true, effects);
  }
  life.incarnation = ++last_incarnation_;
  std::string address = hello.address;
  links_[link] = life;
  // From here on the change needs no memory.
  presence = {now, hello.known, seat.incarnation != 0};
  seat = {life.incarnation, Epoch::State::kAlive, std::move(address)};
  next_verdict_ = std::min(next_verdict_, now + options_.dead_after);
  Announce(effects, [&] {
    effects->Log(Level::kInfo,
                 Format("{} {} joined (incarnation {}){}", Name(life.role), life.index,
                        life.incarnation, presence.rejoined ? ", again" : ""));
    Welcome(link, life, false, effects);
  });
}

void Head::Welcome(LinkId link, const Life& life, bool resumed, Effects* effects) {
  tkv::Welcome welcome;
  welcome.rank = life.index;
  welcome.incarnation = life.incarnation;
  welcome.resumed = resumed;
  welcome.protocol = options_.protocol;
  if (life.role != Role::kObserver) {
    welcome.rejoined = PresenceOf(life.role, life.index).rejoined;
  }
  Message message;
  message.type = Type::kWelcome;
  message.number = static_cast<uint64_t>(options_.dead_after);
  message.extra = Encode(welcome);
  effects->Send(link, std::move(message));
  effects->Send(link, MakeEpoch());
}

Message Head::MakeEpoch() const {
  Message message;
  message.type = Type::kEpoch;
  message.number = epoch_.number;
  message.extra = Encode(epoch_);
  return message;
}

// Gives a change its EPOCH number.
void Head::NoteChange() {
  ++epoch_.number;
  has_news_ = true;
}

// Runs the rest of the event of a change, and gives the change its EPOCH number.  Sends the EPOCH at
// once, unless the rate limit delays it.
template <typename Rest>
void Head::Announce(Effects* effects, Rest rest) {
  try {
    rest();
  } catch (const std::bad_alloc&) {
    NoteChange();
    throw;
  }
  NoteChange();
  if (now_ >= next_announcement_) Tell(effects);
}

void Head::Tell(Effects* effects) {
  const Message message = MakeEpoch();
  for (const auto& [link, life] : links_) effects->Send(link, message);
  has_news_ = false;
  const size_t bytes = message.extra.size() * links_.size();
  if (bytes <= options_.epoch_bytes_at_once) return;
  const double seconds =
      static_cast<double>(bytes) / static_cast<double>(options_.epoch_bytes_per_second);
  next_announcement_ = now_ + static_cast<Time>(seconds * kSecond);
}

void Head::OnCommit(const Life& life, const Message& message, LinkId link, Effects* effects) {
  if (life.role != Role::kWorker) {
    return effects->Close(link, Code::kInvalidArgument, "COMMIT by somebody who is no worker");
  }
  auto& commits = epoch_.commits;
  const auto found = std::find_if(commits.begin(), commits.end(), [&](const Epoch::Commit& commit) {
    return commit.rank == life.index && commit.incarnation == life.incarnation;
  });
  if (found == commits.end()) {
    commits.push_back({life.index, life.incarnation, message.number});
  } else {
    found->generation = std::max(found->generation, message.number);
  }
  effects->Send(link, Reply(message, Type::kOk, message.number));
}

void Head::OnGoodbye(const Life& life, const Message& message, LinkId link, Effects* effects) {
  effects->Send(link, Reply(message, Type::kOk));
  if (life.role == Role::kObserver) return;
  const bool has_failed = message.number != 0;
  SeatOf(life.role, life.index).state = has_failed ? Dead(life.role) : Epoch::State::kLeft;
  Announce(effects, [&] {
    effects->Log(Level::kInfo, Format("{} {} {}", Name(life.role), life.index,
                                      has_failed ? "is dead: its program has failed" : "left"));
  });
}

void Head::Closed(LinkId link, Time) { links_.erase(link); }

void Head::Ended(LinkId link, Effects* effects) {
  const auto found = links_.find(link);
  if (found == links_.end() || found->second.role == Role::kObserver) return;
  const Life life = found->second;
  links_.erase(found);
  Exited(life.role, life.index, life.incarnation, effects);
}

void Head::Exited(Role role, Rank index, uint64_t incarnation, Effects* effects) {
  Epoch::Seat& seat = SeatOf(role, index);
  if (seat.incarnation != incarnation) return;
  PresenceOf(role, index).is_silent = false;
  if (seat.state != Epoch::State::kAlive) return;
  seat.state = Dead(role);
  Announce(effects, [&] {
    effects->Log(Level::kWarning,
                 Format("{} {} is dead: its process has ended", Name(role), index));
  });
}

void Head::Gone(Role role, Rank index, bool has_failed, Effects* effects) {
  Epoch::Seat& seat = SeatOf(role, index);
  const bool has_ended_first =
      role == Role::kWorker && seat.state == Epoch::State::kAlive && !has_failed;
  const bool never_came = seat.state == Epoch::State::kAwaited || has_ended_first;
  if (never_came) seat.state = has_failed ? Dead(role) : Epoch::State::kLeft;
  const bool is_awaited = role == Role::kWorker && seat.state == Epoch::State::kDead;
  // Rounds that need it fail, because no process can complete them any more.
  if (is_awaited) seat.state = Epoch::State::kLost;
  if (!never_came && !is_awaited) return;
  Announce(effects, [&] {
    if (never_came) {
      effects->Log(Level::kWarning, Format("{} {} ended before it joined", Name(role), index));
    }
    if (is_awaited) {
      effects->Log(Level::kWarning, Format("worker {} is not started again", index));
    }
  });
}

void Head::WasAway(Time away, Time now) {
  for (auto* const presences : {&workers_, &servers_}) {
    for (Presence& presence : *presences) {
      presence.last_seen = std::min(now, presence.last_seen + away);
    }
  }
  FindNextVerdict();
}

void Head::Tick(Time now, Effects* effects) {
  now_ = now;
  if (now_ >= next_verdict_) {
    bool has_changed = false;
    try {
      has_changed = Judge(effects);
    } catch (const std::bad_alloc&) {
      NoteChange();  // perhaps there is none; the next Tick judges the others
      throw;
    }
    if (has_changed) return Announce(effects, [] {});
  }
  if (has_news_ && now_ >= next_announcement_) Tell(effects);
}

// Declares silent members dead.  Returns true if there was one.
bool Head::Judge(Effects* effects) {
  bool changed = false;
  for (const Role role : {Role::kWorker, Role::kServer}) {
    auto& members = role == Role::kServer ? epoch_.servers : epoch_.workers;
    for (size_t i = 0; i < members.size(); ++i) {
      const auto index = static_cast<Rank>(i);
      if (members[i].state != Epoch::State::kAlive) continue;
      const Time silent = now_ - PresenceOf(role, index).last_seen;
      if (silent < options_.dead_after) continue;
      members[i].state = Dead(role);
      PresenceOf(role, index).is_silent = true;
      changed = true;
      effects->Log(Level::kWarning, Format("{} {} is dead: silent for {:.1f} s", Name(role), index,
                                           static_cast<double>(silent) / kSecond));
    }
  }
  FindNextVerdict();
  return changed;
}

// Computes next_verdict_ from all members.  A message only postpones a member's verdict, so the old
// time stays valid until it is reached.
void Head::FindNextVerdict() {
  next_verdict_ = kNever;
  for (const Role role : {Role::kWorker, Role::kServer}) {
    const auto& members = role == Role::kServer ? epoch_.servers : epoch_.workers;
    const auto& presences = role == Role::kServer ? servers_ : workers_;
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].state == Epoch::State::kAlive) {
        next_verdict_ = std::min(next_verdict_, presences[i].last_seen + options_.dead_after);
      }
    }
  }
}

const char* Head::StateFor(LinkId link) const {
  const auto life = links_.find(link);
  if (life == links_.end()) return "stranger";
  return IsCurrent(life->second) ? "known" : "over";
}

}  // namespace tkv
