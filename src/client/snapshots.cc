// Saving and loading: reads of cut versions, and restores.

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"

namespace tkv {

namespace {

// The rows of one bucket that a read needs, and their place in the result.
struct Asked {
  RowRange rows;    // within the bucket
  uint64_t at = 0;  // index of the first of them in the result
};

// Returns the part of a read that one bucket holds.
//   before  number of rows in the buckets before this one
//   count   number of rows in this one
Asked AskedOf(const RowRange& read, uint64_t before, uint64_t count) {
  const uint64_t begin = std::max(read.first, before);
  const uint64_t end = std::min(read.first + read.count, before + count);
  if (begin >= end) return {};
  return {{begin - before, end - begin}, begin - read.first};
}

}  // namespace

bool Client::ReadsRows(const Operation::Read& read) {
  return read.meta->by_rows() && !(*read.states)[0].IsScalar(read.part);
}

codec::Range Client::RowsRange(const Operation::Read& read, const RowRange& rows, uint64_t at) {
  const size_t bytes = ChunkState::RowBytes(read.part, read.meta->dtype, read.meta->elements());
  return {at * bytes, rows.count * bytes};
}

// Returns the range of the read's `out` that receives a chunk's part.  Arrays have the order of the
// value.  Scalars have one entry for each chunk.
codec::Range Client::PartRange(const Operation::Read& read, uint32_t chunk) {
  const KeyMeta& meta = *read.meta;
  const auto& states = *read.states;
  if (!read.pull.ids.ends.empty()) return RangeOf(meta, read.pull, chunk);
  if (ReadsRows(read)) {
    uint64_t before = 0;
    for (uint32_t c = 0; c < chunk; ++c) before += states[c].RowsOf(read.part);
    const Asked asked = AskedOf(read.rows, before, states[chunk].RowsOf(read.part));
    return RowsRange(read, asked.rows, asked.at);
  }
  const size_t bytes = states[chunk].PartBytes(read.part, meta.dtype, meta.elements_of(chunk));
  size_t before =
      read.part == ChunkState::kValue ? ItemSize(meta.dtype) : ItemSize(ComputeType(meta.dtype));
  before *= meta.chunk_elements;
  if (states[chunk].IsScalar(read.part)) before = sizeof(double);
  return {chunk * before, bytes};
}

// Starts at once: servers keep the cut version even if the key has changed or was deleted since.
void Client::StartRead(Op* op) {
  op->has_started = true;
  const auto& read = *op->operation.As<Operation::Read>();
  const auto& states = *read.states;
  const auto chunks = static_cast<uint32_t>(states.size());
  for (uint32_t c = 0; c < chunks; ++c) {
    const uint32_t server = ServerOf(epoch_.placement, op->key, c);
    if (const auto& dead = links_[server].dead()) return Fail(op, *dead);
  }
  uint64_t before = 0;
  for (uint32_t c = 0; c < chunks; before += states[c++].RowsOf(read.part)) {
    if (!states[c].HasPart(read.part)) continue;
    if (!read.pull.ids.ends.empty()) {
      const size_t bytes = PartRange(read, c).size;
      if (bytes > 0) QueueRead(op, c, bytes, nullptr);
      continue;
    }
    if (!ReadsRows(read)) {
      QueueRead(op, c, PartRange(read, c).size, nullptr);
      continue;
    }
    const Asked asked = AskedOf(read.rows, before, states[c].RowsOf(read.part));
    if (asked.rows.count == 0) continue;
    QueueRead(op, c, RowsRange(read, asked.rows, 0).size, &asked.rows);
  }
  if (op->unpulled == 0) Finish(op);
}

void Client::QueueRead(Op* op, uint32_t chunk, size_t bytes, const RowRange* rows) {
  const auto& operation = *op->operation.As<Operation::Read>();
  Outgoing read;
  read.op = op->id;
  read.priority = op->operation.priority;
  read.pull_bytes = bytes;
  read.message.type = Type::kPull;
  read.message.flags = kOfCut;
  read.message.key = op->key;
  read.message.chunk = chunk;
  read.message.dtype = operation.meta->dtype;
  read.message.number = operation.part;
  read.message.need = (*operation.states)[chunk].version;
  if (rows != nullptr) read.message.extra = Encode(*rows);
  if (!operation.pull.ids.ends.empty()) {
    read.message.body = operation.pull.ids.PartOf(chunk);
    read.pull_bytes += read.message.body.size;
  }
  ++op->unpulled;
  Queue(ServerOf(epoch_.placement, op->key, chunk), std::move(read));
}

void Client::OnReadAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unpulled);
  if (reply.type != Type::kValue) return Fail(op, ErrorOf(reply));
  const auto& read = *op->operation.As<Operation::Read>();
  const size_t bytes = PartRange(read, sent.message.chunk).size;
  if (reply.body.size != bytes) {
    return Fail(
        op, Error(Code::kInternal, Format("part {} of chunk {} has {} bytes, {} were cut",
                                          read.part, sent.message.chunk, reply.body.size, bytes)));
  }
  FinishIfDone(op);
}

void Client::StartRelease(Op* op) {
  op->has_started = true;
  for (const ServerLink& link : links_) {
    if (link.dead()) continue;
    Outgoing release;
    release.op = op->id;
    release.message.type = Type::kRelease;
    release.message.chunk = op->operation.store;
    ++op->unaccepted;
    Queue(link.server(), std::move(release));
  }
  if (op->unaccepted == 0) Finish(op);
}

// Asks chunks for their status: all chunks for a kStats, one chunk for the base of the rounds.
void Client::StartStatus(const KeyId& id, KeyState* key, Op* op) {
  op->has_started = true;
  const size_t count = op->operation.Is<Operation::Stats>() ? key->chunks.size() : 1;
  op->table.version = UINT64_MAX;
  for (uint32_t c = 0; c < count; ++c) {
    Outgoing ask;
    ask.op = op->id;
    ask.message.type = Type::kStatus;
    ask.message.key = id;
    ask.message.chunk = c;
    const bool finds_base = op->operation.Is<Operation::FindBase>();
    if (finds_base && welcome_.rank != kNoRank && links_[key->chunks[c].server].TakesSteps()) {
      ask.message.flags = kInStep;
    }
    ++op->unaccepted;
    Queue(key->chunks[c].server, std::move(ask));
  }
}

static uint8_t FlagOf(Operation::Restore::Extent extent) {
  switch (extent) {
    case Operation::Restore::Extent::kAll:
      return 0;
    case Operation::Restore::Extent::kMore:
      return kMore;
    case Operation::Restore::Extent::kOnlyRows:
      return kOnlyRows;
    case Operation::Restore::Extent::kOnlyValue:
      return kOnlyValue;
  }
  return 0;
}

void Client::StartRestore(const KeyId& id, KeyState* key, Op* op) {
  op->has_started = true;
  op->round = key->round;
  const auto& operation = *op->operation.As<Operation::Restore>();
  if (key->is_uneven()) return Fail(op, Uneven(key->base + key->round));
  PlaceChunks(id, key);
  if (operation.states->size() != key->chunks.size()) {
    return Fail(
        op, Error(Code::kInvalidArgument, Format("{} chunks, the key has {}",
                                                 operation.states->size(), key->chunks.size())));
  }
  for (const KnownChunk& known : key->chunks) {
    const ServerLink& link = links_[known.server];
    if (link.incarnation() == 0) continue;
    if (key->meta.by_rows() && (link.features() & kSavesRowsFeature) == 0) {
      return Fail(op, CannotSaveRows(known.server));
    }
    if (operation.extent == Operation::Restore::Extent::kOnlyValue &&
        (link.features() & kAssignsFeature) == 0) {
      return Fail(op, Error(Code::kUnimplemented,
                            Format("server {} cannot assign values to keys that exist; upgrade "
                                   "tensorkv where it runs",
                                   known.server)));
    }
  }
  key->opening = op->id;  // no other operation on this key starts meanwhile
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    const ChunkState& state = (*operation.states)[c];
    const bool is_of_rows = operation.extent == Operation::Restore::Extent::kMore ||
                            operation.extent == Operation::Restore::Extent::kOnlyRows;
    if (is_of_rows && state.rows == 0 && state.candidates == 0) continue;
    Outgoing restore;
    restore.op = op->id;
    restore.message.type = Type::kRestore;
    restore.message.key = id;
    restore.message.flags = FlagOf(operation.extent);
    restore.message.chunk = c;
    restore.message.dtype = key->meta.dtype;
    restore.message.number = operation.round;
    if (operation.step.number != 0 && !key->meta.by_rows() &&
        links_[key->chunks[c].server].RestoresSteps()) {
      restore.message.flags |= kInStep;
      restore.message.extra = Encode(operation.step);
    }
    restore.message.extra += Encode(state);
    restore.message.body = operation.value.PartOf(c);
    ++op->unaccepted;
    Queue(key->chunks[c].server, std::move(restore));
  }
  if (op->unaccepted == 0) Finish(op);
}

Error Client::CannotSaveRows(uint32_t server) {
  return Error(Code::kUnimplemented,
               Format("server {} cannot save or load keys that are kept by rows; upgrade tensorkv "
                      "where it runs",
                      server));
}

}  // namespace tkv
