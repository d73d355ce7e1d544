// For those who look: what waits, for which reason, and since when.

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
