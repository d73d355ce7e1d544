// The search of a later life for the current round of a key.

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"

namespace tkv {

namespace {

// Keeps the newest step of all chunks, with the smallest number of keys that a chunk reports.
void NoteStep(const PushStep& of_chunk, PushStep* newest) {
  if (of_chunk.number > newest->number) *newest = of_chunk;
  if (of_chunk.number == newest->number) newest->keys = std::min(newest->keys, of_chunk.keys);
}

}  // namespace

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
  key->joining = {Joining::Phase::kStatus, 0, 0, {}};
  NextJoinPhase(id, key);
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
    message.number = key->joining.round;
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
  Op* const control = controls_.empty() ? nullptr : Find(controls_.front());
  if (control != nullptr && control->announcing == Announcing::kWaiting) Fail(control, error);
  FailFront(key, error);
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
    NoteGone(&key, ErrorOf(reply));
    if (key.joining.phase != Phase::kNone) FailJoin(&key, ErrorOf(reply));
    return;
  }
  if (key.joining.phase == Phase::kNone) return;  // the search has failed already
  ChunkPlace& place = key.chunks[sent.message.chunk];
  if (key.joining.phase == Phase::kStatus && !unknown_barrier) {
    const ChunkStatus status = DecodeChunkStatus(reply.extra);
    place.version = std::max(place.version, status.version);
    key.joining.round = std::max(key.joining.round, status.last_arrived);
    key.base = status.base;
    if (status.step) NoteStep(*status.step, &key.joining.step);
  }
  if (key.joining.left > 0) return;
  if (key.joining.phase == Phase::kStatus) {
    key.round = key.joining.round;
    key.former_step = key.joining.step;
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
