// Cuts, which are versions of chunks kept for reading, and restored values: PULL with kCut and
// kOfCut, RELEASE, RESTORE.

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "base/memory_error.h"
#include "server/shard.h"

namespace tkv {

// ---- chunks -------------------------------------------------------------------------------------

std::optional<Bytes> ChunkCut::Part(uint64_t part) const {
  if (state.by_rows) {
    if (!state.IsScalar(part)) return std::nullopt;
    return states[part - ChunkState::kStates - state.arrays].bytes();
  }
  if (part == ChunkState::kValue) return value.Read();
  if (part == ChunkState::kMaster)
    return state.has_master ? std::optional(master.bytes()) : std::nullopt;
  const uint64_t index = part - ChunkState::kStates;
  return index < states.size() ? std::optional(states[index].bytes()) : std::nullopt;
}

ChunkCut ChunkEditor::Cut(const Chunk& chunk, uint32_t store) {
  ChunkCut cut;
  cut.store = store;
  cut.dtype = chunk.dtype;
  cut.state.version = chunk.version;
  cut.value = chunk.value;
  cut.state.by_rows = chunk.value.by_rows();
  if (cut.state.by_rows) {
    const RowTable& table = chunk.value.rows();
    cut.bucket = chunk.bucket;
    cut.state.rows = table.size();
    cut.state.row_version = table.version();
    cut.state.has_notes = table.policy().has_notes;
    cut.state.candidates = table.candidates().size();
  }
  if (chunk.rule == nullptr) return cut;
  cut.master = chunk.master;
  cut.states = chunk.states;
  cut.state.updates = chunk.updates;
  cut.state.has_master = static_cast<bool>(chunk.master);
  cut.state.spec = chunk.rule->spec();
  if (cut.state.by_rows) {  // rows contain the states, except for scalars
    cut.state.has_master = chunk.value.rows().has_master();
    cut.state.arrays = static_cast<uint8_t>(chunk.value.rows().state_count());
    cut.state.scalars = static_cast<uint8_t>(chunk.states.size());
    return cut;
  }
  if (chunk.states.empty()) return cut;
  cut.state.arrays = static_cast<uint8_t>(chunk.rule->program().states().size());
  cut.state.scalars = static_cast<uint8_t>(chunk.rule->program().scalar_states().size());
  return cut;
}

void ChunkEditor::Restore(Chunk* chunk, const ChunkState& state, const Bytes& body, bool adds) {
  if (state.by_rows != chunk->value.by_rows() || (adds && !state.by_rows) ||
      state.rows > body.size / sizeof(uint64_t) ||
      state.candidates > body.size / sizeof(uint64_t)) {
    throw Fail(Code::kInvalidArgument, "{} rows in {} bytes, of a key that is{} kept by rows",
               state.rows, body.size, chunk->value.by_rows() ? "" : " not");
  }
  const size_t bytes = state.Bytes(chunk->dtype, chunk->elements);
  if (body.size != bytes) {
    throw Fail(Code::kInvalidArgument, "{} bytes of {}, its parts have {}", body.size,
               Name(chunk->dtype), bytes);
  }
  const Rule* const rule = chunk->rule.get();
  const bool has_state = state.updates > 0 || state.arrays > 0 || state.scalars > 0;
  if (has_state && rule == nullptr) {
    throw Fail(Code::kFailedPrecondition, "there are states, and the store has no optimizer");
  }
  if (has_state && state.spec.program != rule->spec().program) {
    throw Fail(Code::kFailedPrecondition, "the states are of another optimizer than the store has");
  }
  const size_t arrays = rule == nullptr ? 0 : rule->program().states().size();
  const size_t scalars = rule == nullptr ? 0 : rule->program().scalar_states().size();
  const bool is_fresh = state.arrays == 0 && state.scalars == 0;
  if (!is_fresh && (state.arrays != arrays || state.scalars != scalars)) {
    throw Fail(Code::kInvalidArgument, "{} and {} states, the optimizer has {} and {}",
               state.arrays, state.scalars, arrays, scalars);
  }
  const bool needs_master =
      rule != nullptr && rule->spec().multi_precision && ComputeType(chunk->dtype) != chunk->dtype;
  if (state.has_master && !needs_master) {
    throw Fail(Code::kFailedPrecondition,
               "there is a float32 master, and the optimizer has no multi_precision");
  }
  if (state.by_rows) return RestoreRows(chunk, state, body, adds);
  size_t at = 0;
  const auto take = [&](uint64_t part) {
    Block block = CopyOf({const_cast<std::byte*>(body.data) + at,
                          state.PartBytes(part, chunk->dtype, chunk->elements), nullptr});
    at += block.size;
    return block;
  };
  // All parts are copied before the chunk changes, so that a lack of memory changes nothing.
  Block value;
  if (state.has_value) value = take(ChunkState::kValue);
  Block master;
  if (state.has_master) master = take(ChunkState::kMaster);
  std::vector<Block> states(size_t{state.arrays} + state.scalars);
  for (size_t i = 0; i < states.size(); ++i) states[i] = take(ChunkState::kStates + i);
  if (state.has_value) chunk->value.dense_ = std::move(value);
  chunk->master = std::move(master);
  chunk->states = std::move(states);
  chunk->updates = state.updates;
  chunk->failure.reset();
}

void ChunkEditor::Assign(Chunk* chunk, const Bytes& body) {
  const size_t bytes = chunk->elements * ItemSize(chunk->dtype);
  if (chunk->value.by_rows() || body.size != bytes) {
    throw Fail(Code::kInvalidArgument, "{} bytes for a value of {} bytes{}", body.size, bytes,
               chunk->value.by_rows() ? " a row" : "");
  }
  chunk->value.dense_ = CopyOf({const_cast<std::byte*>(body.data), body.size, nullptr});
  chunk->master = {};
  chunk->failure.reset();
}

// ---- messages -----------------------------------------------------------------------------------

void Shard::OnRead(Session* session, const Message& message, Effects* effects) {
  const ChunkCut* const found = core_.cuts.Find(session->id, message.chunk_id());
  if (found == nullptr) {
    return replies_.AnswerError(session, message, Code::kNotFound, "nothing of it is kept any more",
                                effects);
  }
  const ChunkCut& cut = *found;
  if (cut.state.version != message.need) {
    return replies_.AnswerError(
        session, message, Code::kNotFound,
        Format("version {} of it is kept, not {}", cut.state.version, message.need), effects);
  }
  if (cut.state.by_rows && cut.state.HasPart(message.number) &&
      !cut.state.IsScalar(message.number)) {
    return OnReadRows(session, message, cut, effects);
  }
  const auto part = cut.Part(message.number);
  if (!part) {
    return replies_.AnswerError(session, message, Code::kInvalidArgument,
                                Format("there is no part {}", message.number), effects);
  }
  Message reply = Reply(message, Type::kValue, cut.state.version);
  reply.dtype = cut.dtype;
  reply.body = *part;
  effects->Send(session->link, std::move(reply));
}

void Shard::OnReadRows(Session* session, const Message& message, const ChunkCut& cut,
                       Effects* effects) {
  if (message.extra.empty()) return OnReadSomeRows(session, message, cut, effects);
  RowRange rows;
  try {
    rows = DecodeRowRange(message.extra);
  } catch (const Error& error) {
    return replies_.Violation(session, message, error.what(), effects);
  }
  const RowTable& table = cut.value.rows();
  const uint64_t count = cut.state.RowsOf(message.number);
  const size_t row_bytes = std::max<size_t>(
      1, ChunkState::RowBytes(message.number, table.dtype(), table.row_elements()));
  if (rows.first > count || rows.count > count - rows.first ||
      rows.count > kPartBytesMax / row_bytes) {
    return replies_.AnswerError(
        session, message, Code::kOutOfRange,
        Format("{} rows from row {} on of {} are too many", rows.count, rows.first, count),
        effects);
  }
  Message reply = Reply(message, Type::kValue, cut.state.version);
  reply.dtype = cut.dtype;
  try {
    reply.body = NamedWhereMemoryEnds(
        "the server", [&] { return core_.editor.ReadCut(cut, message.number, rows); });
  } catch (const Error& error) {
    return replies_.AnswerError(session, message, error.code(), error.what(), effects);
  }
  effects->Send(session->link, std::move(reply));
}

// Sends the values of the rows whose ids the message has.
void Shard::OnReadSomeRows(Session* session, const Message& message, const ChunkCut& cut,
                           Effects* effects) {
  if (message.number != ChunkState::kValue) {
    return replies_.AnswerError(session, message, Code::kInvalidArgument,
                                Format("part {} is not read by ids", message.number), effects);
  }
  if (message.body.size % sizeof(uint64_t) != 0) {
    return replies_.AnswerError(session, message, Code::kInvalidArgument,
                                Format("{} bytes of ids; an id has 8", message.body.size), effects);
  }
  if (message.body.size > 0 && !message.body) {  // Admit refused memory for the ids
    return replies_.AnswerError(
        session, message, Code::kResourceExhausted,
        Format("{} bytes of ids of this worker are too many", message.body.size), effects);
  }
  const size_t count = message.body.size / sizeof(uint64_t);
  if (count * cut.bucket.row_bytes > kPartBytesMax) {
    return replies_.AnswerError(
        session, message, Code::kResourceExhausted,
        Format("{} rows of {} bytes for one chunk, at most {} bytes are allowed", count,
               cut.bucket.row_bytes, kPartBytesMax),
        effects);
  }
  Message reply = Reply(message, Type::kValue, cut.state.version);
  reply.dtype = cut.dtype;
  try {
    reply.body = NamedWhereMemoryEnds("the server", [&] {
      return core_.editor.ReadCutRows(cut, codec::MixesOf(cut.bucket, message.body));
    });
  } catch (const Error& error) {
    return replies_.AnswerError(session, message, error.code(), error.what(), effects);
  }
  effects->Send(session->link, std::move(reply));
}

void Shard::OnRelease(Session* session, const Message& message, Effects* effects) {
  core_.cuts.Drop(session->id, message.chunk);
  effects->Send(session->link, Reply(message, Type::kOk));
}

// Restores a chunk.  Fails while a round is open, because its pushes were computed from the values
// that the RESTORE replaces.
void Shard::OnRestore(Session* session, Message& message, Effects* effects) {
  const auto key = core_.keys.find(message.key);
  const auto found = core_.chunks.find(message.chunk_id());
  if (key == core_.keys.end() || found == core_.chunks.end()) {
    return replies_.AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  if (!core_.members.IsLowestRank(session->id.rank)) {
    return replies_.AnswerError(session, message, Code::kFailedPrecondition,
                                "the lowest rank that lives puts values back", effects);
  }
  ChunkState state;
  PushStep step;
  try {
    std::string_view extra = message.extra;
    if ((message.flags & kInStep) != 0) step = TakeStep(&extra);
    state = DecodeChunkState(extra);
  } catch (const Error& error) {
    return replies_.Violation(session, message, error.what(), effects);
  }
  if (message.body.size > 0 && !message.body) {  // Admit refused memory for the body
    return replies_.AnswerError(session, message, Code::kFailedPrecondition,
                                Format("{} bytes came before their key", message.body.size),
                                effects);
  }
  Chunk& chunk = found->second;
  const bool has_open_round = std::any_of(chunk.rounds.begin(), chunk.rounds.end(),
                                          [](const Round& round) { return round.count > 0; });
  // The rule in trial is final if this worker sent it, because a worker restores only after its
  // commit.  Other workers restore between two barriers that the rule's sender has passed, too.
  // Their RESTORE needs a commit that this server knows.
  const bool is_certain =
      chunk.former && (chunk.former->tried->SentBy(session->id.rank, session->id.incarnation) ||
                       controls_.IsCommitted(*chunk.former->tried));
  if (is_certain) chunk.former.reset();
  if (has_open_round || chunk.former) {
    return replies_.AnswerError(
        session, message, Code::kFailedPrecondition,
        Format("round {} has begun; values are put back between two barriers",
               chunk.base + chunk.version + 1),
        effects);
  }
  controls_.Apply(&key->second, &chunk);  // rules due at the next round, which has not begun
  const bool only_rows = (message.flags & kOnlyRows) != 0;
  const bool only_value = (message.flags & kOnlyValue) != 0;
  // Workers number steps from the saved one.  None of it has to be made again, because a snapshot
  // has no part of a step.
  std::vector<PushStep> steps;
  try {
    NamedWhereMemoryEnds("the server", [&] {
      const bool has_step = step.number != 0 && !chunk.value.by_rows();
      if (has_step) steps.assign(core_.epoch().workers.size(), PushStep{step.number, 0});
      if (only_value) return core_.editor.Assign(&chunk, message.body);
      if (only_rows) return core_.editor.ReplaceRows(&chunk, state, message.body);
      core_.editor.Restore(&chunk, state, message.body, (message.flags & kMore) != 0);
    });
  } catch (const Error& error) {
    return replies_.AnswerError(session, message, error.code(), error.what(), effects);
  }
  if (!only_rows && !only_value && state.has_value &&
      key->second.meta.mode == KeyMeta::Mode::kSync) {
    chunk.base = message.number - chunk.version;
    chunk.steps = std::move(steps);  // without a saved step, workers number from the round
  }
  replies_.Answer(session, message, Reply(message, Type::kOk, chunk.version), effects);
}

}  // namespace tkv
