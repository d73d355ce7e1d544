#include "server/snapshots.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/memory_error.h"
#include "server/asked_ids.h"

namespace tkv {

bool Snapshots::Admits(const Session& session, const Message& message) const {
  const Chunk* const chunk = core_.FindChunk(message.chunk_id());
  if (chunk == nullptr || !core_.members.IsLowestRank(session.id.rank)) return false;
  if (chunk->value.by_rows()) return message.body.size <= kPartBytesMax;
  return message.body.size <= (ChunkState::kStatesMax + 2) * (chunk->elements + 1) * 8;
}

void Snapshots::OnRead(Session* session, const Message& message, Effects* effects) {
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

void Snapshots::OnReadRows(Session* session, const Message& message, const ChunkCut& cut,
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

void Snapshots::OnReadSomeRows(Session* session, const Message& message, const ChunkCut& cut,
                               Effects* effects) {
  if (message.number != ChunkState::kValue) {
    return replies_.AnswerError(session, message, Code::kInvalidArgument,
                                Format("part {} is not read by ids", message.number), effects);
  }
  Message reply = Reply(message, Type::kValue, cut.state.version);
  reply.dtype = cut.dtype;
  try {
    const std::vector<uint64_t> mixes = AskedMixes(message, cut.bucket, cut.bucket.row_bytes);
    reply.body =
        NamedWhereMemoryEnds("the server", [&] { return core_.editor.ReadCutRows(cut, mixes); });
  } catch (const Error& error) {
    return replies_.AnswerError(session, message, error.code(), error.what(), effects);
  }
  effects->Send(session->link, std::move(reply));
}

void Snapshots::OnRelease(Session* session, const Message& message, Effects* effects) {
  core_.cuts.Drop(session->id, message.chunk);
  effects->Send(session->link, Reply(message, Type::kOk));
}

void Snapshots::OnRestore(Session* session, Message& message, Effects* effects) {
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
