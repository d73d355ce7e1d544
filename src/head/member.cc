#include "head/member.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

namespace tkv {
void Member::Start(Time now, Effects* effects) {
  lost_since_ = now;
  backoff_.Reset();
  Dial(now, effects);
}

void Member::Dial(Time now, Effects* effects) {
  next_dial_ = now + options_.dead_after;  // if this dial has no result
  effects->dials.push_back({Peer::Kind::kHead, 0});
}

void Member::Opened(LinkId link, Time now, Effects* effects) {
  if (link_ != kNoLink || refused_) return effects->Close(link, Code::kCancelled, "");
  link_ = link;
  welcomed_ = false;
  next_dial_ = kNever;
  last_heard_ = now;
  next_ping_ = now + options_.ping_every;
  Hello hello;
  hello.job = options_.job;
  hello.role = options_.role;
  hello.rank = joined() ? welcome_->rank : options_.rank;
  hello.incarnation = joined() ? welcome_->incarnation : 0;
  hello.known = options_.process;
  hello.address = options_.address;
  hello.protocol = options_.protocol;
  Message message;
  message.type = Type::kHello;
  message.extra = Encode(hello);
  effects->Send(link, std::move(message));
}

void Member::Closed(LinkId link, Time now, Effects* effects) {
  if (link_ != kNoLink && link != link_) return;
  link_ = kNoLink;
  if (std::exchange(welcomed_, false)) backoff_.Ended(now - open_since_);
  next_ping_ = kNever;
  if (lost_since_ == kNever) {
    lost_since_ = now;
    if (!refused_ && !left_) {
      effects->Log(Level::kWarning, "the head is out of reach; data goes on without it");
    }
  }
  if (refused_) return;
  next_dial_ = now + backoff_.Next();
}

bool Member::HeadEnded() {
  if (!joined()) return false;
  head_has_ended_ = true;
  if (left_) return false;  // normal: the head ends when all members have left
  bool is_news = false;
  const auto lose = [&](Epoch::Seat* seat) {
    seat->state = Epoch::State::kLost;
    is_news = true;
  };
  const auto is_there = [](const Epoch::Seat& seat) {
    return seat.state == Epoch::State::kAlive || seat.state == Epoch::State::kAwaited;
  };
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    Epoch::Seat& seat = epoch_.workers[static_cast<size_t>(rank)];
    if (rank == options_.worker_beside_head && is_there(seat)) {
      // The head sends commits with its next EPOCH, and may have died before that.  So every
      // CONTROL of this worker that servers hold counts as committed.
      std::erase_if(epoch_.commits, [&](const auto& commit) { return commit.rank == rank; });
      epoch_.commits.push_back({rank, seat.incarnation, UINT64_MAX});
      lose(&seat);
    } else if (seat.state == Epoch::State::kAwaited || seat.state == Epoch::State::kDead) {
      lose(&seat);  // no process can join without a head
    }
  }
  const Rank server = options_.server_beside_head;
  if (server >= 0 && static_cast<size_t>(server) < epoch_.servers.size() &&
      is_there(epoch_.servers[static_cast<size_t>(server)])) {
    lose(&epoch_.servers[static_cast<size_t>(server)]);
  }
  epoch_.number += static_cast<uint64_t>(is_news);
  return is_news;
}

bool Member::Received(LinkId link, const Message& message, Time now, Effects* effects) {
  if (link != link_) return false;
  last_heard_ = now;
  switch (message.type) {
    case Type::kWelcome: {
      const Welcome welcome = DecodeWelcome(message.extra);
      if (const auto error =
              WhyNotTogether("the head", welcome.protocol, "this process", options_.protocol)) {
        refused_ = *error;
        link_ = kNoLink;
        effects->Close(link, error->code(), error->what());
        return false;
      }
      AdoptSilence(message.number, now, effects);
      if (!joined()) welcome_ = welcome;
      welcomed_ = true;
      head_has_ended_ = false;
      ++welcomes_;
      if (lost_since_ != kNever && epoch_.number > 0) {
        effects->Log(Level::kWarning, "the head is back");
      }
      lost_since_ = kNever;
      open_since_ = now;
      return false;
    }
    case Type::kEpoch: {
      if (!joined() || message.number <= epoch_.number) return false;
      Epoch epoch = DecodeEpoch(message.number, message.extra);
      CheckEpoch(epoch);
      epoch_ = std::move(epoch);
      return true;
    }
    case Type::kError:
      if (message.seq == 0) refused_ = ErrorOf(message);
      return false;
    default:
      return false;
  }
}

// Takes the silence that the head allows.  With another one, this process would send too few signs
// of life, or would give the head up too early.
void Member::AdoptSilence(uint64_t nanoseconds, Time now, Effects* effects) {
  constexpr auto kLeast = static_cast<uint64_t>(kSecond / 2);  // as of the option silence_ms
  constexpr auto kMost = static_cast<uint64_t>(kNever / 2);
  if (nanoseconds == 0 || nanoseconds == static_cast<uint64_t>(options_.dead_after)) return;
  const auto silence = static_cast<Time>(std::clamp(nanoseconds, kLeast, kMost));
  effects->Log(Level::kWarning,
               Format("silence_ms is {} here and {} at the head, whose value counts",
                      options_.dead_after / kMillisecond, silence / kMillisecond));
  options_.AllowSilence(silence);
  next_ping_ = std::min(next_ping_, now + options_.ping_every);
}

// Throws if an EPOCH has other numbers of workers or servers than the EPOCH before, or lacks this
// process.  Other code uses ranks and server numbers as indices.
void Member::CheckEpoch(const Epoch& epoch) const {
  const bool same = epoch_.number == 0 || (epoch.workers.size() == epoch_.workers.size() &&
                                           epoch.servers.size() == epoch_.servers.size());
  const bool is_observer = options_.role == Role::kObserver;
  const auto& places = options_.role == Role::kServer ? epoch.servers : epoch.workers;
  const Rank own = welcome_->rank;
  const bool is_listed = own >= 0 && static_cast<size_t>(own) < places.size();
  if (same && (is_observer || is_listed)) return;
  throw Fail(Code::kInvalidArgument, "{} workers and {} servers, before {} and {}; this is {}",
             epoch.workers.size(), epoch.servers.size(), epoch_.workers.size(),
             epoch_.servers.size(), own);
}

void Member::Tick(Time now, Effects* effects) {
  if (next_dial_ <= now) Dial(now, effects);
  if (link_ == kNoLink) return;
  if (now - last_heard_ >= options_.dead_after) {
    effects->Log(Level::kWarning, Format("the head is silent for {:.1f} s",
                                         static_cast<double>(now - last_heard_) / kSecond));
    effects->Close(link_, Code::kUnavailable, "silence");
    Closed(link_, now, effects);
    return;
  }
  if (next_ping_ <= now) {
    next_ping_ = now + options_.ping_every;
    if (!welcomed_) return;
    Message ping;
    ping.type = Type::kPing;
    ping.number = epoch_.number;
    effects->Send(link_, std::move(ping));
  }
}

const char* Member::State() const {
  if (refused_) return "refused";
  if (!joined()) return "joining";
  return welcomed_ ? "joined" : "resuming";
}

void Member::AddStats(Time now, StoreStats* stats) const {
  PeerStats peer;
  peer.name = "head";
  peer.state = refused_ ? "dead" : welcomed_ ? "open" : link_ != kNoLink ? "hello" : "dialing";
  peer.connections = welcomes_;
  if (welcomes_ > 0) {
    peer.last_word_seconds = static_cast<double>(now - last_heard_) / kSecond;
    stats->reconnects += welcomes_ - 1;
  }
  stats->peers.push_back(std::move(peer));
}

Time Member::deadline() const { return std::min({next_dial_, next_ping_, verdict_at()}); }

}  // namespace tkv
