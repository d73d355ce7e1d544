// The search for the current round of a key, by a later life or after a push that has failed.

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"

namespace tkv {

// Returns true if no answer under way could be mistaken for an answer to the search.
bool Client::CanJoin(const KeyState& key) {
  return key.pulls == 0 && key.pushes == 0 && key.joining.is_over();
}

void Client::StartJoin(const KeyId& id, KeyState* key) {
  if (key->meta.mode == KeyMeta::Mode::kAsync) {  // there are no rounds to join
    key->must_join = false;
    Wake(id);
    if (Op* const op = Find(key->opening)) Finish(op);
    return;
  }
  key->joining = {};
  key->joining.phase = Joining::Phase::kStatus;
  NextJoinPhase(id, key);
}

// Returns true if this worker repeats a push that only some chunks have: one of an earlier life, or
// one of this life that has failed.  Under `continue` rounds complete without a dead worker, so no
// push of an earlier life is repeated.
bool Client::RepeatsPushes(const KeyState& key) const {
  return key.has_pushed || epoch_.policy != Epoch::Policy::kContinue;
}

// Adds what a chunk has of this worker.  A key that goes on from its oldest chunk has that chunk's
// step.
void Client::AddToSearch(const ChunkStatus& chunk, KeyState* key) const {
  Joining& found = key->joining;
  const uint64_t round = std::max(chunk.last_arrived, key->joined_at);
  const bool repeats = RepeatsPushes(*key);
  if (repeats && round < found.oldest) found.step = {};
  const bool counts = !repeats || round <= found.oldest;
  found.oldest = std::min(found.oldest, round);
  found.newest = std::max(found.newest, round);
  if (!chunk.step || !counts) return;
  const PushStep& step = *chunk.step;
  if (step.number > found.step.number) found.step = step;
  if (step.number == found.step.number) found.step.keys = std::min(found.step.keys, step.keys);
}

// Sets the key's current round by what its chunks have.
void Client::SetRound(KeyState* key) const {
  const Joining& found = key->joining;
  if (key->is_barrier && begins_anew_ && !key->has_pushed) {
    key->reached = found.newest;
    return;
  }
  uint64_t oldest = found.oldest;
  // A push that has failed counts for nobody, even if all chunks have it.
  if (key->lost_from != 0) oldest = std::min(oldest, key->lost_from - 1);
  // A barrier that no server knows yet has no chunk.
  const bool repeats = RepeatsPushes(*key) && oldest < found.newest;
  key->round = repeats ? oldest : found.newest;
  key->repeats_to = repeats ? found.newest : 0;
  key->joined_at = key->round;
  key->lost_from = 0;
  key->former_step = found.step;
}

Error Client::Uneven(uint64_t round) {
  return tkv::Fail(Code::kFailedPrecondition,
                   "the push of round {} by this worker has failed, or was ended with its process, "
                   "and parts of this key have it; push the key again first",
                   round + 1);
}

// Sends STATUS for every chunk, or ABSTAIN for the rounds in which an earlier life may have pushed.
// The join does not wait for those rounds; the next push or pull does.  Other workers may be able
// to complete them only when this life has pushed another key.
void Client::NextJoinPhase(const KeyId& id, KeyState* key) {
  std::set<uint32_t> asked;
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    Outgoing outgoing;
    outgoing.purpose = Purpose::kJoin;
    Message& message = outgoing.message;
    message.key = id;
    message.chunk = c;
    message.number = key->round;
    if (key->joining.phase == Joining::Phase::kStatus) {
      message.type = Type::kStatus;
      message.number = 0;
      if (links_[key->chunks[c].server].TakesSteps()) message.flags = kInStep;
    } else {
      if (!asked.insert(key->chunks[c].server).second) continue;
      message.type = Type::kAbstain;
    }
    ++key->joining.left;
    Queue(key->chunks[c].server, std::move(outgoing));
  }
}

void Client::FailJoin(KeyState* key, const Error& error) {
  key->joining.phase = Joining::Phase::kNone;
  if (Op* const op = Find(key->opening)) {
    key->opening = kNoOp;
    return Fail(op, error);
  }
  const Announcement* const change = announcements_.front();
  if (change != nullptr && !change->is_over && !change->has_started())
    Fail(Find(change->op), error);
  FailFirstQueued(key, error);
}

void Client::OnJoinAnswer(const Outgoing& sent, const Message& reply) {
  using Phase = Joining::Phase;
  const auto found = keys_.find(sent.message.key);
  if (found == keys_.end()) return;
  KeyState& key = found->second;
  Drop(&key.joining.left);
  Wake(found->first);
  const bool unknown_barrier =
      key.is_barrier && reply.type == Type::kError && ErrorOf(reply).code() == Code::kNotFound;
  if (reply.type == Type::kError && !unknown_barrier) {
    MarkStaleIfGone(&key, ErrorOf(reply));
    if (key.joining.phase != Phase::kNone) FailJoin(&key, ErrorOf(reply));
    return;
  }
  if (key.joining.phase == Phase::kNone) return;  // the search has failed already
  KnownChunk& known = key.chunks[sent.message.chunk];
  if (key.joining.phase == Phase::kStatus && !unknown_barrier) {
    const ChunkStatus status = DecodeChunkStatus(reply.extra);
    known.version = std::max(known.version, status.version);
    key.base = status.base;
    AddToSearch(status, &key);
  }
  if (key.joining.left > 0) return;
  if (key.joining.phase == Phase::kStatus) {
    SetRound(&key);
    key.joining.phase = Phase::kAbstain;
    return NextJoinPhase(found->first, &key);
  }
  key.joining.phase = Phase::kNone;
  key.must_join = false;
  if (Op* const op = Find(key.opening)) {
    key.opening = kNoOp;
    Finish(op);
  }
}

}  // namespace tkv
