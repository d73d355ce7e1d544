#include "client/round_finder.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace tkv {

void RoundFinder::Start(const KeyId& id, ClientKey* key) {
  if (!key->is_sync()) {  // there are no rounds to join
    key->must_join = false;
    core_.keys.Wake(id);
    if (Op* const op = core_.ops.Find(key->opening)) core_.Finish(op);
    return;
  }
  key->search = {};
  key->search.phase = RoundSearch::Phase::kStatus;
  NextPhase(id, key);
}

// Returns true if this worker repeats a push that only some chunks have: one of an earlier life, or
// one of this life that has failed.  Under `continue` rounds complete without a dead worker, so no
// push of an earlier life is repeated.
bool RoundFinder::RepeatsPushes(const ClientKey& key) const {
  return key.has_pushed || core_.members.epoch.policy != Epoch::Policy::kContinue;
}

// Adds what a chunk has of this worker.  A key that goes on from its oldest chunk has that chunk's
// step.
void RoundFinder::AddChunk(const ChunkStatus& chunk, ClientKey* key) const {
  RoundSearch& found = key->search;
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
void RoundFinder::SetRound(ClientKey* key) const {
  const RoundSearch& found = key->search;
  if (key->is_barrier && core_.begins_anew && !key->has_pushed) {
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

// Sends STATUS for every chunk, or ABSTAIN for the rounds in which an earlier life may have pushed.
// The join does not wait for those rounds; the next push or pull does.  Other workers may be able
// to complete them only when this life has pushed another key.
void RoundFinder::NextPhase(const KeyId& id, ClientKey* key) {
  std::set<uint32_t> asked;
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    Outgoing outgoing;
    outgoing.purpose = Purpose::kJoin;
    Message& message = outgoing.message;
    message.key = id;
    message.chunk = c;
    message.number = key->round;
    if (key->search.phase == RoundSearch::Phase::kStatus) {
      message.type = Type::kStatus;
      message.number = 0;
      if (core_.links[key->chunks[c].server].TakesSteps()) message.flags = kInStep;
    } else {
      if (!asked.insert(key->chunks[c].server).second) continue;
      message.type = Type::kAbstain;
    }
    ++key->search.left;
    core_.Queue(key->chunks[c].server, std::move(outgoing));
  }
}

void RoundFinder::FailSearch(ClientKey* key, const Error& error) {
  key->search.phase = RoundSearch::Phase::kNone;
  if (Op* const op = core_.ops.Find(key->opening)) {
    key->opening = kNoOp;
    return core_.Fail(op, error);
  }
  const Announcement* const change = core_.announcements.front();
  if (change != nullptr && !change->is_over && !change->has_started())
    core_.Fail(core_.ops.Find(change->op), error);
  core_.FailFirstQueued(key, error);
}

void RoundFinder::OnAnswer(const Outgoing& sent, const Message& reply) {
  using Phase = RoundSearch::Phase;
  ClientKey* const found = core_.keys.Find(sent.message.key);
  if (found == nullptr) return;
  ClientKey& key = *found;
  Drop(&key.search.left);
  core_.keys.Wake(sent.message.key);
  const bool unknown_barrier =
      key.is_barrier && reply.type == Type::kError && ErrorOf(reply).code() == Code::kNotFound;
  if (reply.type == Type::kError && !unknown_barrier) {
    key.MarkStaleIfGone(ErrorOf(reply));
    if (key.search.phase != Phase::kNone) FailSearch(&key, ErrorOf(reply));
    return;
  }
  if (key.search.phase == Phase::kNone) return;  // the search has failed already
  KnownChunk& known = key.chunks[sent.message.chunk];
  if (key.search.phase == Phase::kStatus && !unknown_barrier) {
    const ChunkStatus status = DecodeChunkStatus(reply.extra);
    known.version = std::max(known.version, status.version);
    key.base = status.base;
    AddChunk(status, &key);
  }
  if (key.search.left > 0) return;
  if (key.search.phase == Phase::kStatus) {
    SetRound(&key);
    key.search.phase = Phase::kAbstain;
    return NextPhase(sent.message.key, &key);
  }
  key.search.phase = Phase::kNone;
  key.must_join = false;
  if (Op* const op = core_.ops.Find(key.opening)) {
    key.opening = kNoOp;
    core_.Finish(op);
  }
}

}  // namespace tkv
