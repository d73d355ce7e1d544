#include "client/cut_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "client/ranges.h"

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

bool ReadsRows(const Operation::Read& read) {
  return read.meta->by_rows() && !(*read.states)[0].IsScalar(read.part);
}

codec::Range RowsRange(const Operation::Read& read, const RowRange& rows, uint64_t at) {
  const size_t bytes = ChunkState::RowBytes(read.part, read.meta->dtype, read.meta->elements());
  return {at * bytes, rows.count * bytes};
}

// Adds the counters of a bucket.  Returns false if the reply has none.
bool AddTableStats(const Message& reply, TableStats* table) {
  const auto of_bucket = DecodeChunkStatus(reply.extra).table;
  if (!of_bucket) return false;
  table->rows += of_bucket->rows;
  table->candidates += of_bucket->candidates;
  table->evicted += of_bucket->evicted;
  table->memory_bytes += of_bucket->memory_bytes;
  table->disk_rows += of_bucket->disk_rows;
  table->disk_bytes += of_bucket->disk_bytes;
  table->version = std::min(table->version, of_bucket->version);
  return true;
}

uint8_t FlagOf(Operation::Restore::Extent extent) {
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

}  // namespace

// Arrays have the order of the value.  Scalars have one entry for each chunk.
codec::Range CutReader::RangeOf(const Operation::Read& read, uint32_t chunk) {
  const KeyMeta& meta = *read.meta;
  const auto& states = *read.states;
  if (!read.pull.ids.ends.empty()) return PulledRange(meta, read.pull, chunk);
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

void CutReader::StartRead(Op* op) {
  op->has_started = true;
  const auto& read = *op->operation.As<Operation::Read>();
  const auto& states = *read.states;
  const auto chunks = static_cast<uint32_t>(states.size());
  for (uint32_t c = 0; c < chunks; ++c) {
    const uint32_t server = ServerOf(core_.members.epoch.placement, op->key, c);
    if (const auto& dead = core_.links[server].dead()) return core_.Fail(op, *dead);
  }
  uint64_t before = 0;
  for (uint32_t c = 0; c < chunks; before += states[c++].RowsOf(read.part)) {
    if (!states[c].HasPart(read.part)) continue;
    if (!read.pull.ids.ends.empty()) {
      const size_t bytes = RangeOf(read, c).size;
      if (bytes > 0) QueueRead(op, c, bytes, nullptr);
      continue;
    }
    if (!ReadsRows(read)) {
      QueueRead(op, c, RangeOf(read, c).size, nullptr);
      continue;
    }
    const Asked asked = AskedOf(read.rows, before, states[c].RowsOf(read.part));
    if (asked.rows.count == 0) continue;
    QueueRead(op, c, RowsRange(read, asked.rows, 0).size, &asked.rows);
  }
  if (op->unpulled == 0) core_.Finish(op);
}

void CutReader::QueueRead(Op* op, uint32_t chunk, size_t bytes, const RowRange* rows) {
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
  core_.Queue(ServerOf(core_.members.epoch.placement, op->key, chunk), std::move(read));
}

void CutReader::OnReadAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = core_.ops.Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unpulled);
  if (reply.type != Type::kValue) return core_.Fail(op, ErrorOf(reply));
  const auto& read = *op->operation.As<Operation::Read>();
  const size_t bytes = RangeOf(read, sent.message.chunk).size;
  if (reply.body.size != bytes) {
    return core_.Fail(
        op, Error(Code::kInternal, Format("part {} of chunk {} has {} bytes, {} were cut",
                                          read.part, sent.message.chunk, reply.body.size, bytes)));
  }
  core_.FinishIfDone(op);
}

void CutReader::StartRelease(Op* op) {
  op->has_started = true;
  for (const ServerLink& link : core_.links) {
    if (link.dead()) continue;
    Outgoing release;
    release.op = op->id;
    release.message.type = Type::kRelease;
    release.message.chunk = op->operation.store;
    ++op->unaccepted;
    core_.Queue(link.server(), std::move(release));
  }
  if (op->unaccepted == 0) core_.Finish(op);
}

void CutReader::StartStatus(const KeyId& id, ClientKey* key, Op* op) {
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
    if (finds_base && core_.members.welcome.rank != kNoRank &&
        core_.links[key->chunks[c].server].TakesSteps()) {
      ask.message.flags = kInStep;
    }
    ++op->unaccepted;
    core_.Queue(key->chunks[c].server, std::move(ask));
  }
}

void CutReader::OnStatusAnswer(Op* op, const Outgoing& sent, const Message& reply) {
  if (op->operation.Is<Operation::FindBase>()) {
    const ChunkStatus status = DecodeChunkStatus(reply.extra);
    // Another thread may have deleted the key meanwhile.
    if (ClientKey* const key = core_.keys.Find(op->key)) {
      key->base = status.base;
      key->former_step = status.step.value_or(PushStep{});
    }
  } else if (!AddTableStats(reply, &op->table)) {
    const uint32_t chunk = sent.message.chunk;
    const uint32_t server = ServerOf(core_.members.epoch.placement, op->key, chunk);
    return core_.Fail(op, CannotSaveRows(server));
  }
  if (op->unaccepted == 0) core_.Finish(op);
}

std::optional<Error> CutReader::WhyNotRestored(const ClientKey& key,
                                               const Operation::Restore& operation) const {
  if (operation.states->size() != key.chunks.size()) {
    return Error(Code::kInvalidArgument,
                 Format("{} chunks, the key has {}", operation.states->size(), key.chunks.size()));
  }
  for (const KnownChunk& known : key.chunks) {
    const ServerLink& link = core_.links[known.server];
    if (link.incarnation() == 0) continue;
    if (key.meta.by_rows() && (link.features() & kSavesRowsFeature) == 0) {
      return CannotSaveRows(known.server);
    }
    if (operation.extent == Operation::Restore::Extent::kOnlyValue &&
        (link.features() & kAssignsFeature) == 0) {
      return Error(Code::kUnimplemented,
                   Format("server {} cannot assign values to keys that exist; upgrade tensorkv "
                          "where it runs",
                          known.server));
    }
  }
  return std::nullopt;
}

void CutReader::StartRestore(const KeyId& id, ClientKey* key, Op* op) {
  op->has_started = true;
  op->round = key->round;
  const auto& operation = *op->operation.As<Operation::Restore>();
  if (key->is_uneven()) return core_.Fail(op, key->Uneven());
  core_.PlaceChunks(id, key);
  if (const auto error = WhyNotRestored(*key, operation)) return core_.Fail(op, *error);
  key->opening = op->id;  // no other operation on this key starts meanwhile
  const bool is_of_rows = operation.extent == Operation::Restore::Extent::kMore ||
                          operation.extent == Operation::Restore::Extent::kOnlyRows;
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    const ChunkState& state = (*operation.states)[c];
    if (is_of_rows && state.rows == 0 && state.candidates == 0) continue;
    QueueRestore(id, key, op, c);
  }
  if (op->unaccepted == 0) core_.Finish(op);
}

void CutReader::QueueRestore(const KeyId& id, ClientKey* key, Op* op, uint32_t chunk) {
  const auto& operation = *op->operation.As<Operation::Restore>();
  const ServerLink& link = core_.links[key->chunks[chunk].server];
  Outgoing restore;
  restore.op = op->id;
  restore.message.type = Type::kRestore;
  restore.message.key = id;
  restore.message.flags = FlagOf(operation.extent);
  restore.message.chunk = chunk;
  restore.message.dtype = key->meta.dtype;
  restore.message.number = operation.round;
  if (operation.step.number != 0 && !key->meta.by_rows() && link.RestoresSteps()) {
    restore.message.flags |= kInStep;
    restore.message.extra = Encode(operation.step);
  }
  restore.message.extra += Encode((*operation.states)[chunk]);
  restore.message.body = operation.value.PartOf(chunk);
  ++op->unaccepted;
  core_.Queue(link.server(), std::move(restore));
}

}  // namespace tkv
