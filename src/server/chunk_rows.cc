// Chunks of keys by rows: buckets.

#include <algorithm>

#include "server/chunk.h"

namespace tkv {

void ChunkWorker::StartRows(Chunk* chunk, const KeyMeta& meta, const Bytes& body) {
  const codec::Bucket& bucket = chunk->bucket;
  const size_t count = bucket.RowsIn(body.size);
  const auto mixes = codec::MixesOf(bucket, body.data, count);
  RowTable table(meta.dtype, static_cast<size_t>(meta.elements()), meta.initializer, bucket.count);
  RowPlaces places;
  table.Reserve(mixes, &places);
  const std::byte* const values = count == 0 ? nullptr : body.data + count * sizeof(uint64_t);
  table.Assign(places, {values, bucket.row_bytes, nullptr}, meta.dtype);
  chunk->value.rows_ = std::move(table);
}

Bytes ChunkWorker::ReadRows(const Chunk& chunk, std::span<const uint64_t> mixes) {
  const RowTable& table = chunk.value.rows();
  const Block out = pool_->Allocate(mixes.size() * table.row_bytes());
  table.Read(mixes, out.data);
  return out.bytes();
}

//   throws  as codec::MixesOf
void ChunkWorker::CheckRows(const Chunk& chunk, const codec::Part& part) {
  codec::MixesOf(chunk.bucket, part.bytes.data, chunk.bucket.RowsIn(part.bytes.size));
}

// A part as a sum.
//   throws  as codec::MixesOf
SparseSum ChunkWorker::RowsOf(const Chunk& chunk, const codec::Part& part,
                              SparseSum::Memory memory) {
  const size_t count = chunk.bucket.RowsIn(part.bytes.size);
  if (count == 0) return {};
  return SparseSum::OfSorted(codec::MixesOf(chunk.bucket, part.bytes.data, count),
                             part.bytes.data + count * sizeof(uint64_t), chunk.dtype,
                             chunk.elements, memory);
}

// Without a rule the rows of the sum take the place of those that are there.
void ChunkWorker::AssignRows(Chunk* chunk, const SparseSum& sum) {
  RowPlaces places;
  chunk->value.rows_->Reserve(sum.names(), &places);
  chunk->value.rows_->Assign(places, sum.values(), ComputeType(chunk->dtype));
}

void ChunkWorker::UpdateRows(Chunk* chunk, const SparseSum& sum, const std::vector<double>& params,
                             size_t count) {
  const Rule& rule = *chunk->rule;
  RowTable& table = *chunk->value.rows_;
  const DType compute = ComputeType(chunk->dtype);
  std::vector<double> kept;
  kept.reserve(chunk->states.size());
  for (const Block& state : chunk->states) kept.push_back(*state.as<double>());
  RowUpdate update(rule.CompiledFor(chunk->dtype), chunk->dtype, chunk->elements, params, kept,
                   static_cast<double>(chunk->updates + 1), static_cast<double>(count),
                   chunk->stream);
  std::vector<Block> states;
  states.reserve(update.scalars().size());
  for (size_t i = 0; i < update.scalars().size(); ++i) {
    states.push_back(pool_->Allocate(sizeof(double)));
  }
  const bool has_master = rule.spec().multi_precision && compute != chunk->dtype;
  if (table.state_count() != update.states() || table.has_master() != has_master) {
    table.StartStates(update.states(), has_master);
  }
  RowPlaces places;
  table.Reserve(sum.names(), &places);
  if (rule.spec().lazy) {
    table.Update(&update, sum.names(), places, sum.values());
  } else {
    table.ReserveAll();
    table.UpdateAll(&update, sum.names(), sum.values());
  }
  for (size_t i = 0; i < states.size(); ++i) *states[i].as<double>() = update.scalars()[i];
  chunk->states = std::move(states);
  ++chunk->updates;
}

}  // namespace tkv
