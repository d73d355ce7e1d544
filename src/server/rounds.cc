#include "server/rounds.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/memory_error.h"
#include "codec/codec.h"

namespace tkv {
namespace {

// Notes in a barrier's round that a worker has done the task, or has failed.  The first failure
// counts.  An undone task is named by the lowest rank: it would have the task next, so the worker
// that it names is dead.
void AddBarrierTask(uint8_t flags, const std::optional<Error>& failure, Rank rank, size_t index,
                    Chunk* chunk) {
  if (chunk->rounds.size() <= index) chunk->rounds.resize(index + 1);
  Round& round = chunk->rounds[index];
  if ((flags & kDone) != 0) round.is_done = true;
  if (!failure) return;
  if ((flags & kUnlessDone) != 0) {
    if (!round.undone || rank < round.undone->first) round.undone.emplace(rank, *failure);
  } else if (!round.failure) {
    round.failure = Error(failure->code(), Format("worker {}: {}", rank, failure->what()));
  }
}

// Returns the reason why a push does not fit its chunk, if there is one.
std::optional<Error> JudgePush(const Message& push, const KeyMeta& meta, const Chunk& chunk) {
  if (push.dtype != chunk.dtype) {
    return Fail(Code::kFailedPrecondition, "{} bytes of {}, the chunk has {} of {}{}",
                push.body.size, Name(push.dtype), chunk.bytes(), Name(chunk.dtype), kDeleteRight);
  }
  if (const auto error =
          codec::Judge(meta, push.chunk, push.encoding, push.param, push.body.size)) {
    const bool is_of_another_shape = error->code() == Code::kFailedPrecondition;
    return Fail(error->code(), "{}{}", error->what(), is_of_another_shape ? kDeleteRight : "");
  }
  if (push.body.size > 0 && !push.body) {  // Admit refused memory for the body
    return Fail(Code::kFailedPrecondition, "{} bytes came before their key{}", push.body.size,
                kDeleteRight);
  }
  return std::nullopt;
}

// Returns what a push brings beside its values.
//   throws  kInvalidArgument (malformed)
PushExtra DecodePushExtra(const Message& push, bool is_barrier) {
  if ((push.flags & (kFails | kUnlessDone | kDone)) != 0 && !is_barrier) {
    throw Fail(Code::kInvalidArgument, "only a barrier can fail");
  }
  PushExtra decoded;
  std::string_view extra = push.extra;
  if ((push.flags & kInStep) != 0) decoded.step = TakeStep(&extra);
  if ((push.flags & kFails) != 0) {
    decoded.failure = DecodeFailure(extra);
  } else if ((push.flags & kHasScalars) != 0) {
    if ((push.flags & kOfRule) != 0) decoded.scalars.rule = TakeRuleDigest(&extra);
    decoded.scalars.numbers = DecodeScalars(extra);
  }
  return decoded;
}

}  // namespace

bool Rounds::Admits(const Message& message) const {
  const Chunk* const chunk = core_.FindChunk(message.chunk_id());
  const StoredKey* const key = core_.FindKey(message.key);
  if (chunk == nullptr || key == nullptr ||
      codec::Judge(key->meta, message.chunk, message.encoding, message.param, message.body.size)) {
    return false;
  }
  // The push needs all of this once its frame has arrived, and memory is slow.  Prefetching here
  // loads the chunks of a frame in parallel.
  chunk->value.Prefetch();
  Prefetch(chunk, sizeof *chunk);
  Prefetch(&key->pending, 1);
  return true;
}

void Rounds::OnPush(Session* session, Message& message, Effects* effects) {
  auto key = core_.keys.find(message.key);
  if ((message.flags & kBarrierKey) != 0 && key == core_.keys.end()) {
    if (!MakeBarrier(session, message, effects)) return;
    key = core_.keys.find(message.key);
  }
  const auto found = core_.chunks.find(message.chunk_id());
  if (key == core_.keys.end() || found == core_.chunks.end()) {
    return replies_.AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  Chunk& chunk = found->second;
  if (!key->second.IsMeantBy(message)) return replies_.AnswerMadeAnew(session, message, effects);
  if (const auto error = JudgePush(message, key->second.meta, chunk)) {
    return replies_.AnswerError(session, message, error->code(), error->what(), effects);
  }
  PushExtra extra;
  try {
    extra = DecodePushExtra(message, key->second.is_barrier);
  } catch (const Error& error) {
    return replies_.Violation(session, message, error.what(), effects);
  }
  if (key->second.meta.mode == KeyMeta::Mode::kAsync) {
    return OnPushAsync(session, message, &key->second, &chunk, extra.scalars, effects);
  }
  OnPushSync(session, message, &key->second, &chunk, std::move(extra), effects);
}

bool Rounds::MakeBarrier(Session* session, const Message& push, Effects* effects) {
  if (push.body.size != 0 || push.chunk != 0) {
    replies_.Violation(session, push, "a barrier has one chunk of no bytes", effects);
    return false;
  }
  const auto store = static_cast<uint32_t>(push.need);
  const std::string name = InternalKey(store, "barrier");
  const bool has_store = IdOf(name) == push.key;  // older workers do not send the store
  if (has_store && core_.dropped.Has(store)) {
    replies_.AnswerError(session, push, Code::kFailedPrecondition, StoreIsOver(store), effects);
    return false;
  }
  StoredKey barrier;
  barrier.is_barrier = true;
  barrier.meta.name = has_store ? name : InternalKey(0, "barrier");
  barrier.store = has_store ? store : kNoStore;
  barrier.meta.shape = Shape({0});
  barrier.chunks = {0};
  core_.keys.emplace(push.key, std::move(barrier));
  core_.chunks[{push.key, 0}].dtype = DType::kF32;
  return true;
}

std::optional<Error> Rounds::JudgeRound(const Message& push, Rank rank, const StoredKey& key,
                                        const Chunk& chunk) const {
  const uint64_t round = push.number;
  if (round > chunk.version + 1 + key.meta.staleness) {
    return Fail(Code::kFailedPrecondition, "round {}, version {} is the newest{}",
                chunk.base + round, chunk.base + chunk.version, kDeleteRight);
  }
  const bool lacks_former = round > chunk.version + 1 && !chunk.HasArrived(round - 1, rank) &&
                            key.AbstainOf(rank) < round - 1;
  // Without this check, the repeated push would be followed by a duplicate whose values are lost.
  if (lacks_former) {
    return Fail(Code::kUnavailable,
                "this worker's push of round {} has failed, and round {} follows it; "
                "push it again first",
                chunk.base + round - 1, chunk.base + round);
  }
  if (key.meta.deterministic && core_.held_bytes + push.body.size > core_.options.hold_bytes_max) {
    return Fail(Code::kResourceExhausted, "{} bytes of pushes are held, at most {} are allowed",
                core_.held_bytes, core_.options.hold_bytes_max);
  }
  return std::nullopt;
}

void Rounds::OnPushSync(Session* session, Message& message, StoredKey* key, Chunk* chunk,
                        PushExtra extra, Effects* effects) {
  const Rank rank = session->id.rank;
  const uint64_t round = message.number;
  const ChunkId id = message.chunk_id();
  if (round <= chunk->version || chunk->HasArrived(round, rank)) {  // a duplicate
    return replies_.Answer(session, message, Reply(message, Type::kAccepted, chunk->version),
                           effects);
  }
  if (const auto error = JudgeRound(message, rank, *key, *chunk)) {
    return replies_.AnswerError(session, message, error->code(), error->what(), effects);
  }
  const size_t index = static_cast<size_t>(round - chunk->version - 1);
  const bool deterministic = key->meta.deterministic;
  if (key->is_barrier) AddBarrierTask(message.flags, extra.failure, rank, index, chunk);
  const bool has_step = extra.step.number != 0 && !chunk->value.by_rows();
  const auto note_step = [&] {
    const auto place = static_cast<size_t>(rank);
    if (place < chunk->steps.size()) chunk->steps[place] = extra.step;
  };
  codec::Part part{message.encoding, message.param, std::move(message.body)};
  message.body = {};
  try {
    if (const auto place = static_cast<size_t>(rank); has_step && chunk->steps.size() <= place) {
      const size_t count = std::max(place + 1, core_.epoch().workers.size());
      NamedWhereMemoryEnds("the server", [&] { chunk->steps.resize(count); });
    }
    const bool is_last = index == 0 && IsComplete(*key, *chunk, rank);
    if (is_last) controls_.Apply(key, chunk);
    if (is_last && !deterministic) {
      NamedWhereMemoryEnds("the server", [&] {
        CheckNotRefused(id);
        core_.editor.ContributeLast(chunk, rank, std::move(part), std::move(extra.scalars));
      });
      note_step();
      key->KeepFailure(*chunk);
      NotifyListeners(id, *chunk);
      replies_.Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
      pulls_.AnswerParked(id, *key, chunk, effects);
    } else {
      const size_t bytes = part.bytes.size;
      NamedWhereMemoryEnds("the server", [&] {
        CheckNotRefused(id);
        if (is_last) core_.editor.MakeUpdateRoom(chunk);
        core_.editor.Contribute(chunk, index, rank, std::move(part), std::move(extra.scalars),
                                deterministic);
      });
      note_step();
      if (deterministic) core_.held_bytes += bytes;
      Round& open = chunk->rounds[index];
      if (open.count == 1) open.since = core_.now;
      replies_.Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
    }
  } catch (const Error& error) {
    return replies_.AnswerError(session, message, error.code(), error.what(), effects);
  }
  Complete(id, key, chunk, effects);
}

void Rounds::OnPushAsync(Session* session, Message& message, StoredKey* key, Chunk* chunk,
                         const Scalars& scalars, Effects* effects) {
  if (message.need != 0 && !session->IsDone(message.need)) {
    size_t bytes = message.body.size;
    for (const Message& other : session->waiting) bytes += other.body.size;
    if (bytes > core_.options.credit_budget_bytes + core_.options.credit_min_bytes) {
      return replies_.Violation(session, message, Format("{} bytes wait for their turn", bytes),
                                effects);
    }
    try {
      message.body = core_.editor.Keep(message.body);
    } catch (const Error& error) {
      return replies_.AnswerError(session, message, error.code(), error.what(), effects);
    }
    session->waiting.push_back(std::move(message));
    return;
  }
  const ChunkId id = message.chunk_id();
  codec::Part part{message.encoding, message.param, std::move(message.body)};
  message.body = {};
  try {
    controls_.Apply(key, chunk);
    // The sender of a CONTROL pushes again only after the commit, so its push makes the rule final.
    const bool is_senders =
        chunk->former && chunk->former->tried->SentBy(session->id.rank, session->id.incarnation);
    if (is_senders) chunk->former.reset();
    NamedWhereMemoryEnds("the server", [&] {
      core_.editor.Apply(chunk, session->id.rank, std::move(part), scalars);
    });
  } catch (const Error& error) {
    replies_.AnswerError(session, message, error.code(), error.what(), effects);
    return pulls_.AnswerParked(id, *key, chunk, effects);
  }
  NotifyListeners(id, *chunk);
  replies_.Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
  pulls_.AnswerParked(id, *key, chunk, effects);
}

void Rounds::OnAbstain(Session* session, const Message& message, Effects* effects) {
  const auto found = core_.keys.find(message.key);
  if (found == core_.keys.end()) {
    return replies_.AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  StoredKey& key = found->second;
  if (!key.IsMeantBy(message)) return replies_.AnswerMadeAnew(session, message, effects);
  const Rank rank = session->id.rank;
  const auto at = std::find_if(key.abstain.begin(), key.abstain.end(),
                               [&](const auto& entry) { return entry.first == rank; });
  if (at == key.abstain.end()) {
    key.abstain.emplace_back(rank, message.number);
  } else {
    at->second = std::max(at->second, message.number);
  }
  replies_.Answer(session, message, Reply(message, Type::kOk), effects);
  for (const uint32_t c : key.chunks) {
    const ChunkId id{message.key, c};
    Complete(id, &key, &core_.chunks.at(id), effects);
  }
}

bool Rounds::IsComplete(const StoredKey& key, const Chunk& chunk, Rank arriving) const {
  const uint64_t round = chunk.version + 1;
  const size_t count = (chunk.rounds.empty() ? 0 : chunk.rounds.front().count) +
                       static_cast<size_t>(arriving != kNoRank);
  const bool needs_members =
      core_.half_closed.empty() || core_.epoch().policy != Epoch::Policy::kContinue;
  if (needs_members && count + key.abstain.size() < core_.members.member_count()) return false;
  bool any = count > 0;
  for (Rank rank = 0; static_cast<size_t>(rank) < core_.epoch().workers.size(); ++rank) {
    if (!core_.IsAwaited(key, rank)) continue;
    if (key.AbstainOf(rank) >= round) {
      any = true;
    } else if (rank != arriving && !chunk.HasArrived(round, rank)) {
      return false;
    }
  }
  return any;
}

void Rounds::Complete(const ChunkId& id, StoredKey* key, Chunk* chunk, Effects* effects) {
  if (key->meta.mode == KeyMeta::Mode::kAsync) return;
  while (IsComplete(*key, *chunk, kNoRank)) {
    controls_.Apply(key, chunk);
    if (!chunk->rounds.empty()) {
      for (const auto& [rank, part] : chunk->rounds.front().held) {
        Drop(&core_.held_bytes, part.bytes.size);
      }
    }
    core_.editor.Complete(chunk);
    key->KeepFailure(*chunk);
    NotifyListeners(id, *chunk);
    pulls_.AnswerParked(id, *key, chunk, effects);
  }
}

void Rounds::NotifyListeners(const ChunkId& id, const Chunk& chunk) const {
  for (ShardListener* const listener : core_.listeners) listener->Completed(core_, id, chunk);
}

void Rounds::CheckNotRefused(const ChunkId& id) const {
  for (ShardListener* const listener : core_.listeners) {
    if (listener->RefusesPush(core_, id)) throw std::bad_alloc();
  }
}

}  // namespace tkv
