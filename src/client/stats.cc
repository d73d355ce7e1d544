// For those who look: what waits, for which reason, and since when.

#include "base/logfmt.h"
#include "client/client.h"

namespace tkv {
namespace {

const char* NameOf(ServerSession::State state) {
  switch (state) {
    case ServerSession::State::kIdle:
      return "idle";
    case ServerSession::State::kDialing:
      return "dialing";
    case ServerSession::State::kHello:
      return "hello";
    case ServerSession::State::kOpen:
      return "open";
    case ServerSession::State::kDead:
      return "dead";
  }
  return "?";
}

}  // namespace

// Called when all has left that could.
void Client::NoteWait(const ServerSession& session, CurrentWait* wait) {
  const bool is_queued = !session.pushes.empty() || !session.pulls.empty();
  if (session.dead || !session.busy()) {
    wait->ForNothing(now_, &waits_);
  } else if (session.state != ServerSession::State::kOpen) {
    wait->For(WaitCause::kLink, now_, &waits_);
  } else if (!is_queued) {
    wait->ForNothing(now_, &waits_);
  } else if (session.pushes.empty()) {
    wait->For(WaitCause::kPullBytes, now_, &waits_);
  } else {
    const bool is_window_full =
        !session.mutating.empty() &&
        session.next_seq >= session.mutating.front() + ServerSession::kWindow;
    wait->For(is_window_full ? WaitCause::kWindow : WaitCause::kCredit, now_, &waits_);
  }
}

// Called when the operation, the first of its key's queue, cannot start.
void Client::NoteWait(const KeyState& key, Op* op) {
  bool asks = false;  // for the version that a push follows
  for (const ChunkPlace& place : key.chunks) asks |= place.asked;
  const WaitCause cause = asks            ? WaitCause::kRound
                          : key.pulls > 0 ? WaitCause::kPull
                                          : WaitCause::kOrder;
  op->wait.For(cause, now_, &waits_);
}

// Which operations may stand still: of each verb the oldest one is told of, for all of them.
void Client::FindStands() {
  stands_.clear();
  ops_.ForEach([&](OpId id, const Op& op) {
    if (op.expired) return;
    Stand& stand = stands_[op.what.verb];
    if (stand.oldest == kNoOp || id < stand.oldest) stand.oldest = id;
    ++stand.count;
  });
}

// One line that says who waits for whom; `round` is 0 where there is none.
void Client::TellStand(const Op& op, uint64_t round, Effects* effects) const {
  const double waited = static_cast<double>(now_ - op.begin) / kSecond;
  const std::string who = Awaited(op);
  Fields fields;
  fields.Add("standing", Format("{:.1f}s", waited)).Add("verb", op.what.verb);
  const bool has_key = !op.what.key.empty() && op.what.kind != Operation::Kind::kBarrier;
  if (has_key) fields.Add("key", ShownKey(op.what.key));
  if (round > 0) fields.Add("round", round);
  fields.Add("waits_for", who);
  for (const ServerSession& session : sessions_) {
    if (!session.busy()) continue;
    fields.Add("server", session.server).Add("link", NameOf(session.state));
    const double age = static_cast<double>(now_ - session.last_heard) / kSecond;
    if (session.counts.was_heard) fields.Add("last_word", Format("{:.1f}s", age));
    break;
  }
  const auto stand = stands_.find(op.what.verb);
  if (stand != stands_.end() && stand->second.count > 1) {
    fields.Add("others", stand->second.count - 1);
  }
  effects->Log(Level::kWarning,
               Format("still waiting {:.0f} s for {} ({}{}): {}", waited, who, Head(op),
                      round > 0 ? Format(", round {}", round) : "", fields.text()));
}

void Client::AddStats(Time now, StoreStats* stats) const {
  waits_.AddTo(stats);
  ops_.ForEach([&](OpId, const Op&) { ++stats->operations_under_way; });
  for (const ServerSession& session : sessions_) {
    PeerStats peer;
    peer.name = ToString(Peer{Peer::Kind::kServer, session.server});
    peer.state = NameOf(session.state);
    peer.connections = session.counts.welcomes;
    peer.resends = session.counts.resends;
    for (const auto* queue : {&session.pushes, &session.pulls}) {
      peer.queued_messages += queue->size();
      for (const Outgoing& waiting : *queue) peer.queued_bytes += waiting.message.body.size;
    }
    peer.unanswered_messages = session.sent.size();
    peer.unaccepted_bytes = session.unaccepted_bytes;
    if (session.counts.was_heard) {
      peer.last_word_seconds = static_cast<double>(now - session.last_heard) / kSecond;
    }
    stats->resends += session.counts.resends;
    if (session.counts.welcomes > 1) stats->reconnects += session.counts.welcomes - 1;
    stats->peers.push_back(std::move(peer));
  }
}

}  // namespace tkv
