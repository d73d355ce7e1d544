// The content of chunks: PUSH, PULL and the rounds between them.

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "base/memory_error.h"
#include "codec/codec.h"
#include "server/shard.h"

namespace tkv {

namespace {

// The remedy in errors about a key that was deleted while another worker still used it.
constexpr const char* kDeleteRight =
    "; every worker calls delete, between two barriers, before the key is inited again";

}  // namespace

// Returns true if a message is meant for an earlier key of this name, deleted since.
bool Shard::IsOfAnother(const Key& key, const Message& message) {
  if ((message.flags & kOfBirth) == 0 || message.need == key.meta.birth) return false;
  const auto& former = key.former_births;
  return std::find(former.begin(), former.end(), message.need) == former.end();
}

void Shard::AnswerMadeAnew(Session* session, const Message& message, Effects* effects) {
  AnswerError(session, message, Code::kFailedPrecondition,
              Format("the key has been deleted and made anew{}", kDeleteRight), effects);
}

void Shard::AnswerTooMany(Session* session, const Message& message, Effects* effects) {
  AnswerError(session, message, Code::kResourceExhausted,
              Format("{} operations of this worker wait at the server", session->parked), effects);
}

// ---- pushes -------------------------------------------------------------------------------------

void Shard::OnPush(Session* session, Message& message, Effects* effects) {
  auto key = keys_.find(message.key);
  if ((message.flags & kBarrierKey) != 0 && key == keys_.end()) {
    if (message.body.size != 0 || message.chunk != 0) {
      return Violation(session, message, "a barrier has one chunk of no bytes", effects);
    }
    Key barrier;
    barrier.is_barrier = true;
    const auto store = static_cast<uint32_t>(message.need);
    const std::string name = InternalKey(store, "barrier");
    const bool is_told = IdOf(name) == message.key;  // older workers do not send the store
    if (is_told && dropped_.Has(store)) {
      return AnswerError(session, message, Code::kFailedPrecondition, StoreIsOver(store), effects);
    }
    barrier.meta.name = is_told ? name : InternalKey(0, "barrier");
    barrier.store = is_told ? store : kNoStore;
    barrier.meta.shape = Shape({0});
    barrier.chunks = {0};
    key = keys_.emplace(message.key, std::move(barrier)).first;
    chunks_[{message.key, 0}].dtype = DType::kF32;
  }
  const auto found = chunks_.find(message.chunk_id());
  if (key == keys_.end() || found == chunks_.end()) {
    return AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  Chunk& chunk = found->second;
  if (IsOfAnother(key->second, message)) return AnswerMadeAnew(session, message, effects);
  if (message.dtype != chunk.dtype) {
    return AnswerError(session, message, Code::kFailedPrecondition,
                       Format("{} bytes of {}, the chunk has {} of {}{}", message.body.size,
                              Name(message.dtype), chunk.bytes(), Name(chunk.dtype), kDeleteRight),
                       effects);
  }
  if (const auto error = codec::Judge(key->second.meta, message.chunk, message.encoding,
                                      message.param, message.body.size)) {
    const bool is_of_another_shape = error->code() == Code::kFailedPrecondition;
    return AnswerError(session, message, error->code(),
                       Format("{}{}", error->what(), is_of_another_shape ? kDeleteRight : ""),
                       effects);
  }
  if (message.body.size > 0 && !message.body) {  // Admit refused memory for the body
    return AnswerError(session, message, Code::kFailedPrecondition,
                       Format("{} bytes came before their key{}", message.body.size, kDeleteRight),
                       effects);
  }
  Scalars scalars;
  std::optional<Error> failure;
  PushStep step;
  try {
    if ((message.flags & (kFails | kUnlessDone | kDone)) != 0 && !key->second.is_barrier) {
      throw Fail(Code::kInvalidArgument, "only a barrier can fail");
    }
    std::string_view extra = message.extra;
    if ((message.flags & kInStep) != 0) step = TakeStep(&extra);
    if ((message.flags & kFails) != 0) {
      failure = DecodeFailure(extra);
    } else if ((message.flags & kHasScalars) != 0) {
      if ((message.flags & kOfRule) != 0) scalars.rule = TakeRuleDigest(&extra);
      scalars.numbers = DecodeScalars(extra);
    }
  } catch (const Error& error) {
    return Violation(session, message, error.what(), effects);
  }
  if (key->second.meta.mode == KeyMeta::Mode::kAsync) {
    return OnPushAsync(session, message, &key->second, &chunk, scalars, effects);
  }
  OnPushSync(session, message, &key->second, &chunk, std::move(scalars), step, failure, effects);
}

void Shard::OnPushSync(Session* session, Message& message, Key* key, Chunk* chunk, Scalars scalars,
                       const PushStep& step, const std::optional<Error>& failure,
                       Effects* effects) {
  const Rank rank = session->id.rank;
  const uint64_t round = message.number;
  const ChunkId id = message.chunk_id();
  if (round <= chunk->version || chunk->HasArrived(round, rank)) {  // a duplicate
    return Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
  }
  if (round > chunk->version + 1 + key->meta.staleness) {
    return AnswerError(session, message, Code::kFailedPrecondition,
                       Format("round {}, version {} is the newest{}", chunk->base + round,
                              chunk->base + chunk->version, kDeleteRight),
                       effects);
  }
  const bool lacks_former = round > chunk->version + 1 && !chunk->HasArrived(round - 1, rank) &&
                            key->AbstainOf(rank) < round - 1;
  // Without this check, the repeated push would be followed by a duplicate whose values are lost.
  if (lacks_former) {
    return AnswerError(session, message, Code::kUnavailable,
                       Format("this worker's push of round {} has failed, and round {} follows it; "
                              "push it again first",
                              chunk->base + round - 1, chunk->base + round),
                       effects);
  }
  const size_t index = static_cast<size_t>(round - chunk->version - 1);
  const bool deterministic = key->meta.deterministic;
  if (deterministic && held_bytes_ + message.body.size > options_.hold_bytes_max) {
    return AnswerError(session, message, Code::kResourceExhausted,
                       Format("{} bytes of pushes are held, at most {} are allowed", held_bytes_,
                              options_.hold_bytes_max),
                       effects);
  }
  if (key->is_barrier) AddBarrierTask(message.flags, failure, rank, index, chunk);
  const bool has_step = step.number != 0 && !chunk->value.by_rows();
  const auto note_step = [&] {
    const auto place = static_cast<size_t>(rank);
    if (place < chunk->steps.size()) chunk->steps[place] = step;
  };
  codec::Part part{message.encoding, message.param, std::move(message.body)};
  message.body = {};
  try {
    if (const auto place = static_cast<size_t>(rank); has_step && chunk->steps.size() <= place) {
      const size_t count = std::max(place + 1, epoch_.workers.size());
      NamedWhereMemoryEnds("the server", [&] { chunk->steps.resize(count); });
    }
    const bool is_last = index == 0 && IsComplete(*key, *chunk, rank);
    if (is_last) ApplyControls(key, chunk);
    if (is_last && !deterministic) {
      NamedWhereMemoryEnds("the server", [&] {
        CheckNotRefused(id);
        editor_.ContributeLast(chunk, rank, std::move(part), std::move(scalars));
      });
      note_step();
      KeepFailure(key, *chunk);
      NotifyListeners(id, *chunk);
      Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
      AnswerParked(id, key, chunk, effects);
    } else {
      const size_t bytes = part.bytes.size;
      NamedWhereMemoryEnds("the server", [&] {
        CheckNotRefused(id);
        if (is_last) editor_.MakeUpdateRoom(chunk);
        editor_.Contribute(chunk, index, rank, std::move(part), std::move(scalars), deterministic);
      });
      note_step();
      if (deterministic) held_bytes_ += bytes;
      Round& open = chunk->rounds[index];
      if (open.count == 1) open.since = now_;
      Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
    }
  } catch (const Error& error) {
    return AnswerError(session, message, error.code(), error.what(), effects);
  }
  CompleteRounds(id, key, chunk, effects);
}

// Notes in a barrier's round that a worker has done the task, or has failed.  The first failure
// counts.
void Shard::AddBarrierTask(uint8_t flags, const std::optional<Error>& failure, Rank rank,
                           size_t index, Chunk* chunk) {
  if (chunk->rounds.size() <= index) chunk->rounds.resize(index + 1);
  Round& round = chunk->rounds[index];
  if ((flags & kDone) != 0) round.is_done = true;
  if (!failure) return;
  if ((flags & kUnlessDone) != 0) {
    if (!round.undone) round.undone = failure;
  } else if (!round.failure) {
    round.failure = Error(failure->code(), Format("worker {}: {}", rank, failure->what()));
  }
}

void Shard::OnPushAsync(Session* session, Message& message, Key* key, Chunk* chunk,
                        const Scalars& scalars, Effects* effects) {
  if (message.need != 0 && !session->IsDone(message.need)) {
    size_t bytes = message.body.size;
    for (const Message& other : session->waiting) bytes += other.body.size;
    if (bytes > options_.credit_budget_bytes + options_.credit_min_bytes) {
      return Violation(session, message, Format("{} bytes wait for their turn", bytes), effects);
    }
    try {
      message.body = editor_.Keep(message.body);
    } catch (const Error& error) {
      return AnswerError(session, message, error.code(), error.what(), effects);
    }
    session->waiting.push_back(std::move(message));
    return;
  }
  const ChunkId id = message.chunk_id();
  codec::Part part{message.encoding, message.param, std::move(message.body)};
  message.body = {};
  try {
    ApplyControls(key, chunk);
    // The sender of a CONTROL pushes again only after the commit, so its push makes the rule final.
    const bool is_senders =
        chunk->former && chunk->former->tried->SentBy(session->id.rank, session->id.incarnation);
    if (is_senders) chunk->former.reset();
    NamedWhereMemoryEnds("the server",
                         [&] { editor_.Apply(chunk, session->id.rank, std::move(part), scalars); });
  } catch (const Error& error) {
    AnswerError(session, message, error.code(), error.what(), effects);
    return AnswerParked(id, key, chunk, effects);
  }
  NotifyListeners(id, *chunk);
  Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
  AnswerParked(id, key, chunk, effects);
}

// Returns true if rounds of the key need the rank.  Under `continue` they need no worker that has
// left or has closed the key's store.
bool Shard::IsAwaited(const Key& key, Rank rank) const {
  return epoch_.IsMember(rank) &&
         (epoch_.policy != Epoch::Policy::kContinue || !HasClosed(rank, key.store));
}

// Returns true if round version + 1 is complete.  The push of `arriving` counts as arrived.
bool Shard::IsComplete(const Key& key, const Chunk& chunk, Rank arriving) const {
  const uint64_t round = chunk.version + 1;
  const size_t count = (chunk.rounds.empty() ? 0 : chunk.rounds.front().count) +
                       static_cast<size_t>(arriving != kNoRank);
  const bool needs_members = half_closed_.empty() || epoch_.policy != Epoch::Policy::kContinue;
  if (needs_members && count + key.abstain.size() < member_count_) return false;
  bool any = count > 0;
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    if (!IsAwaited(key, rank)) continue;
    if (key.AbstainOf(rank) >= round) {
      any = true;
    } else if (rank != arriving && !chunk.HasArrived(round, rank)) {
      return false;
    }
  }
  return any;
}

void Shard::NotifyListeners(const ChunkId& id, const Chunk& chunk) const {
  for (ShardListener* const listener : listeners_) listener->Completed(*this, id, chunk);
}

// Keeps the error of a barrier's round that has just completed.
void Shard::KeepFailure(Key* key, const Chunk& chunk) {
  if (!key->is_barrier || !chunk.failure) return;
  if (key->failures.size() >= Key::kFailuresMax) key->failures.erase(key->failures.begin());
  key->failures.emplace_back(chunk.version, *chunk.failure);
}

// Returns the error of a round, or null.  If the key is no barrier, only the newest round's
// error is known.
const Error* Shard::FailureOf(const ChunkId& id, const Chunk& chunk, uint64_t round) const {
  if (round == chunk.version) return chunk.failure ? &*chunk.failure : nullptr;
  if (chunk.elements > 0 || chunk.value.by_rows()) return nullptr;
  for (const auto& [failed, error] : keys_.at(id.key).failures) {
    if (failed == round) return &error;
  }
  return nullptr;
}

// Throws std::bad_alloc if a listener wants the push to find no memory.
void Shard::CheckNotRefused(const ChunkId& id) const {
  for (ShardListener* const listener : listeners_) {
    if (listener->RefusesPush(*this, id)) throw std::bad_alloc();
  }
}

void Shard::CompleteRounds(const ChunkId& id, Key* key, Chunk* chunk, Effects* effects) {
  if (key->meta.mode == KeyMeta::Mode::kAsync) return;
  while (IsComplete(*key, *chunk, kNoRank)) {
    ApplyControls(key, chunk);
    if (!chunk->rounds.empty()) {
      for (const auto& [rank, part] : chunk->rounds.front().held) {
        Drop(&held_bytes_, part.bytes.size);
      }
    }
    editor_.Complete(chunk);
    KeepFailure(key, *chunk);
    NotifyListeners(id, *chunk);
    AnswerParked(id, key, chunk, effects);
  }
}

// ---- pulls --------------------------------------------------------------------------------------

bool Shard::CanAnswer(const Chunk& chunk, const ParkedPull& pull, const Session& session) const {
  return chunk.version >= pull.min_version && (pull.need == 0 || session.IsDone(pull.need));
}

void Shard::SendValue(Session* session, const ChunkId& id, const Chunk& chunk,
                      const ParkedPull& pull, Effects* effects) {
  if (session->link == kNoLink) return;
  if (pull.cuts) {
    if (const std::string why = cuts_.WhyNot(session->id); !why.empty()) {
      return effects->Send(session->link, ErrorReply(pull.seq, Code::kFailedPrecondition, why));
    }
  } else if (!pull.anyway) {
    if (const Error* const failure = FailureOf(id, chunk, pull.min_version)) {
      return effects->Send(session->link, ErrorReply(pull.seq, failure->code(), failure->what()));
    }
  }
  Message reply;
  reply.type = Type::kValue;
  reply.dtype = chunk.dtype;
  reply.chunk = id.chunk;
  reply.key = id.key;
  reply.number = chunk.version;
  reply.seq = pull.seq;
  if (pull.cuts) {
    const Key& key = keys_.at(id.key);
    // A repeated PULL replaces no cut, because its sender may be reading it.
    const ChunkCut& cut = cuts_.Keep(session->id, id, pull.seq, [&] {
      return ChunkEditor::Cut(WithDueRule(key, chunk), StoreOf(key.meta.name));
    });
    reply.number = cut.state.version;
    reply.flags = kNoBody;
    reply.extra = Encode(cut.state);
  } else if (pull.no_body) {
    reply.flags = kNoBody;
  } else if (chunk.value.by_rows()) {
    try {
      reply.body = editor_.ReadRows(chunk, pull.mixes);
    } catch (const Error& error) {
      return effects->Send(session->link, ErrorReply(pull.seq, error.code(), error.what()));
    }
  } else {
    reply.body = chunk.value.Read();
  }
  effects->Send(session->link, std::move(reply));
}

void Shard::OnPull(Session* session, const Message& message, Effects* effects) {
  if ((message.flags & kOfCut) != 0) return OnRead(session, message, effects);
  const bool cuts = (message.flags & kCut) != 0;
  if (cuts && (session->role != Role::kWorker || (message.flags & kNoBody) == 0)) {
    return Violation(session, message, "a cut is a worker's, and without a body", effects);
  }
  const auto key = keys_.find(message.key);
  const auto found = chunks_.find(message.chunk_id());
  if (key == keys_.end() || found == chunks_.end()) {
    return AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  Chunk& chunk = found->second;
  if (IsOfAnother(key->second, message)) return AnswerMadeAnew(session, message, effects);
  const uint64_t need = (message.flags & kOfBirth) != 0 ? 0 : message.need;
  ParkedPull pull{session->id,
                  message.seq,
                  message.number,
                  need,
                  (message.flags & kNoBody) != 0,
                  (message.flags & kAnyway) != 0,
                  cuts};
  if (const auto error = TakeIds(message, chunk, &pull)) {
    return AnswerError(session, message, error->code(), error->what(), effects);
  }
  if (pull.seq <= session->newest_parked) {
    std::erase_if(chunk.parked, [&](const ParkedPull& old) {  // a repetition
      const bool same = old.session == pull.session && old.seq == pull.seq;
      if (same) Unpark(session, old);
      return same;
    });
  }
  if (CanAnswer(chunk, pull, *session)) {
    // An asynchronous chunk takes a new rule with its next push.  A cut has this rule already.
    if (cuts && key->second.meta.mode == KeyMeta::Mode::kAsync) ApplyControls(&key->second, &chunk);
    return SendValue(session, message.chunk_id(), chunk, pull, effects);
  }
  if (const std::string why = WhyNever(key->second, chunk, pull); !why.empty()) {
    return AnswerError(session, message, Code::kUnavailable, why, effects);
  }
  const size_t bytes = pull.mixes.size() * sizeof(uint64_t);
  if (session->parked >= options_.parked_max) return AnswerTooMany(session, message, effects);
  if (session->parked_bytes + bytes > options_.asked_bytes_max) {
    return AnswerError(session, message, Code::kResourceExhausted,
                       Format("{} bytes of ids of this worker wait at the server, at most {} may",
                              session->parked_bytes, options_.asked_bytes_max),
                       effects);
  }
  ++session->parked;
  session->parked_bytes += bytes;
  session->newest_parked = std::max(session->newest_parked, pull.seq);
  chunk.parked.push_back(std::move(pull));
}

// Removes a pull from the counters of its session.
void Shard::Unpark(Session* session, const ParkedPull& pull) {
  Drop(&session->parked);
  Drop(&session->parked_bytes, pull.mixes.size() * sizeof(uint64_t));
}

// Copies the ids of a message into the pull.  Returns an error if they are wrong.
std::optional<Error> Shard::TakeIds(const Message& message, const Chunk& chunk, ParkedPull* pull) {
  const size_t bytes = message.body.size;
  if (!chunk.value.by_rows()) {
    if (bytes == 0) return std::nullopt;
    return Fail(Code::kFailedPrecondition, "{} bytes of ids, and the key is not kept by rows{}",
                bytes, kDeleteRight);
  }
  if (pull->no_body) return std::nullopt;
  if (bytes % sizeof(uint64_t) != 0) {
    return Fail(Code::kInvalidArgument, "{} bytes of ids; an id has 8", bytes);
  }
  if (bytes > 0 && !message.body) {  // Admit refused memory for the ids
    return Fail(Code::kResourceExhausted, "{} bytes of ids of this worker are too many", bytes);
  }
  const size_t count = bytes / sizeof(uint64_t);
  if (count * chunk.value.rows().row_bytes() > kPartBytesMax) {
    return Fail(Code::kResourceExhausted,
                "{} rows of {} bytes for one chunk, at most {} bytes are allowed", count,
                chunk.value.rows().row_bytes(), kPartBytesMax);
  }
  try {
    pull->mixes = NamedWhereMemoryEnds("the server",
                                       [&] { return codec::MixesOf(chunk.bucket, message.body); });
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Returns true if a worker waits for a rank even while the rank is dead.  Under `fail` a worker in
// its first incarnation does not wait.  A restarted worker does: if two workers died at once, each
// would otherwise fail while the other one is dead, until no restart is left.
bool Shard::WaitsForLife(const SessionId& waiting, Rank dead) const {
  return !epoch_.IsLast(dead) && (!epoch_.IsGone(dead) || came_again_.contains(waiting.rank));
}

// Returns the reason why the round of a pull can never complete, or an empty text.
std::string Shard::WhyNever(const Key& key, const Chunk& chunk, const ParkedPull& pull) const {
  if (gone_count_ == 0 && half_closed_.empty()) return {};
  if (pull.min_version <= chunk.version || key.meta.mode == KeyMeta::Mode::kAsync) return {};
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    const bool has_closed = HasClosed(rank, key.store);
    if (!IsAwaited(key, rank) || (WaitsForLife(pull.session, rank) && !has_closed)) continue;
    uint64_t covered = LastCovered(key, chunk, rank);
    if (covered >= pull.min_version) continue;
    covered += chunk.base;  // as the user counts rounds
    if (epoch_.workers[static_cast<size_t>(rank)].state == Epoch::State::kLeft) {
      return Format("worker {} left after round {}; round {} needs it", rank, covered, covered + 1);
    }
    if (has_closed) {
      return Format("worker {} closed store {} after round {}; round {} needs it", rank, key.store,
                    covered, covered + 1);
    }
    return Format("worker {} is dead; round {} needs it", rank, covered + 1);
  }
  return {};
}

void Shard::AnswerParked(const ChunkId& id, Key* key, Chunk* chunk, Effects* effects) {
  std::erase_if(chunk->parked, [&](const ParkedPull& pull) {
    Session& session = sessions_.At(pull.session);
    if (CanAnswer(*chunk, pull, session)) {
      Unpark(&session, pull);
      SendValue(&session, id, *chunk, pull, effects);
      return true;
    }
    const std::string why = WhyNever(*key, *chunk, pull);
    if (why.empty()) return false;
    Unpark(&session, pull);
    if (session.link != kNoLink) {
      effects->Send(session.link, ErrorReply(pull.seq, Code::kUnavailable, why));
    }
    return true;
  });
}

// Returns the last round without a gap that has a push of the rank, or from which it abstains.
uint64_t Shard::LastCovered(const Key& key, const Chunk& chunk, Rank rank) {
  uint64_t last = std::max(key.AbstainOf(rank), chunk.LastArrived(rank));
  while (chunk.HasArrived(last + 1, rank)) ++last;
  return last;
}

ChunkStatus Shard::StatusOf(const Key& key, const Chunk& chunk, Rank rank) const {
  ChunkStatus status;
  status.version = chunk.version;
  status.base = chunk.base;
  status.last_arrived = rank == kNoRank ? chunk.version : LastCovered(key, chunk, rank);
  if (chunk.value.by_rows()) status.table = chunk.value.rows().Stats();
  if (key.meta.mode == KeyMeta::Mode::kAsync) return status;
  for (Rank r = 0; static_cast<size_t>(r) < epoch_.workers.size(); ++r) {
    if (IsAwaited(key, r) && key.AbstainOf(r) <= chunk.version &&
        !chunk.HasArrived(chunk.version + 1, r)) {
      status.missing.push_back(r);
    }
  }
  return status;
}

void Shard::OnStatus(Session* session, const Message& message, Effects* effects) {
  const auto key = keys_.find(message.key);
  const auto chunk = chunks_.find(message.chunk_id());
  if (key == keys_.end() || chunk == chunks_.end()) {
    return AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  ChunkStatus status = StatusOf(key->second, chunk->second, session->id.rank);
  const std::vector<PushStep>& steps = chunk->second.steps;
  const auto rank = static_cast<size_t>(session->id.rank);
  if ((message.flags & kInStep) != 0 && rank < steps.size()) {
    status.step = steps[rank];
    // Rounds complete without a dead worker, so that its next incarnation repeats no step.
    if (epoch_.policy == Epoch::Policy::kContinue) status.step->keys = 0;
  }
  Message reply = Reply(message, Type::kStatusReply, status.version);
  reply.extra = Encode(status);
  effects->Send(session->link, std::move(reply));
}

// Cancels a waiting PULL or DESCRIBE.  The message has its key and chunk, so that no search is
// needed.
void Shard::OnCancel(Session* session, const Message& message, Effects* effects) {
  Message reply = Reply(message, Type::kOk);
  const auto is_it = [&](const SessionId& owner, uint64_t seq) {
    return owner == session->id && seq == message.number;
  };
  const auto key = keys_.find(message.key);
  const auto chunk = chunks_.find(message.chunk_id());
  if (key != keys_.end() && chunk != chunks_.end()) {
    reply.extra = Encode(StatusOf(key->second, chunk->second, session->id.rank));
    std::erase_if(chunk->second.parked, [&](const ParkedPull& pull) {
      const bool same = is_it(pull.session, pull.seq);
      if (same) Unpark(session, pull);
      return same;
    });
  }
  ForgetDescribe(session, message.number);
  effects->Send(session->link, std::move(reply));
}

}  // namespace tkv
