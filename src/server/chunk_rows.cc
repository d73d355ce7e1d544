// Chunks of keys by rows, which are called buckets.

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "base/mix.h"
#include "server/chunk.h"

namespace tkv {

void ChunkEditor::StartRows(Chunk* chunk, const KeyMeta& meta, const Bytes& body) {
  const codec::Bucket& bucket = chunk->bucket;
  const size_t count = bucket.RowsIn(body.size);
  const auto mixes = codec::MixesOf(bucket, body.data, count);
  RowTable table(meta.dtype, static_cast<size_t>(meta.elements()), meta.initializer, bucket.count,
                 meta.policy, disk_);
  ReservedRows reserved;
  table.Reserve(mixes, &reserved);
  const std::byte* const values = count == 0 ? nullptr : body.data + count * sizeof(uint64_t);
  table.Assign(reserved, {values, bucket.row_bytes, nullptr}, meta.dtype);
  table.Settle();
  chunk->value.rows_ = std::move(table);
}

Bytes ChunkEditor::ReadRows(const Chunk& chunk, std::span<const uint64_t> mixes) {
  const RowTable& table = chunk.value.rows();
  const Block out = pool_->Allocate(mixes.size() * table.row_bytes());
  table.Read(mixes, out.data);
  return out.bytes();
}

//   throws  as codec::MixesOf
void ChunkEditor::CheckRows(const Chunk& chunk, const codec::Part& part) {
  codec::MixesOf(chunk.bucket, part.bytes.data, chunk.bucket.RowsIn(part.bytes.size, part.param));
}

// Returns a part as a sum.
//   throws  as codec::MixesOf
SparseSum ChunkEditor::RowsOf(const Chunk& chunk, const codec::Part& part,
                              SparseSum::Memory memory) {
  const size_t count = chunk.bucket.RowsIn(part.bytes.size, part.param);
  if (count == 0) return {};
  return SparseSum::OfSorted(codec::MixesOf(chunk.bucket, part.bytes.data, count),
                             part.bytes.data + count * sizeof(uint64_t),
                             codec::ValueType(chunk.dtype, part.param), chunk.elements, memory);
}

// Replaces rows by those of the sum, because the chunk has no rule.
void ChunkEditor::AssignRows(Chunk* chunk, const SparseSum& sum) {
  std::optional<RowTable> fresh;
  if (chunk->value.rows().policy().replaces_all) fresh = chunk->value.rows().Emptied();
  RowTable& table = fresh ? *fresh : *chunk->value.rows_;
  ReservedRows reserved;
  table.Admit(sum.names(), &reserved);
  table.Assign(reserved, sum.values(), ComputeType(chunk->dtype));
  table.NotePush(sum.names(), reserved);
  if (fresh) chunk->value.rows_ = std::move(fresh);
}

void ChunkEditor::UpdateRows(Chunk* chunk, const SparseSum& sum, const std::vector<double>& params,
                             size_t count) {
  const Rule& rule = *chunk->rule;
  RowTable& table = *chunk->value.rows_;
  const DType compute = ComputeType(chunk->dtype);
  chunk->params = params;
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
  ReservedRows reserved;
  table.Admit(sum.names(), &reserved);
  if (rule.spec().lazy) {
    table.Update(&update, sum.names(), reserved, sum.values());
  } else {
    try {
      table.ReserveAll();
    } catch (...) {
      table.TakeBack(sum.names(), reserved);
      throw;
    }
    table.UpdateAll(&update, sum.names(), sum.values());
  }
  table.NotePush(sum.names(), reserved);
  for (size_t i = 0; i < states.size(); ++i) *states[i].as<double>() = update.scalars()[i];
  chunk->states = std::move(states);
  ++chunk->updates;
}

// Gives rows the states that they had before a rule was tried.  Values stay, because other workers
// may have pushed meanwhile.  Masters begin anew from the values.
void ChunkEditor::TakeBackRows(Chunk* chunk, FormerRule* former) {
  RowTable& table = *chunk->value.rows_;
  RowTable& old = *former->rows;
  if (chunk->version == former->version) {  // no push since then
    table = std::move(old);
    return;
  }
  table.StartStates(old.state_count(), old.has_master());
  const size_t bytes = old.row_elements() * ItemSize(ComputeType(old.dtype()));
  constexpr size_t kRows = 1024;
  try {
    std::vector<std::byte> rows(kRows * bytes);
    ReservedRows reserved;
    for (uint64_t first = 0;;) {
      std::vector<uint64_t> mixes = old.Mixes(first, kRows);
      if (mixes.empty()) return;
      first = mixes.back();
      const bool is_last = first++ == UINT64_MAX;
      // Rows that were removed meanwhile stay removed.
      std::erase_if(mixes, [&](uint64_t mix) { return !table.Contains(mix); });
      table.Reserve(mixes, &reserved);
      for (size_t s = 0; s < old.state_count(); ++s) {
        old.ReadState(s, mixes, rows.data());
        table.AssignState(s, reserved, {rows.data(), bytes, nullptr});
      }
      if (is_last) return;
    }
  } catch (const std::exception& error) {
    static_cast<void>(error);  // no memory: the remaining rows get fresh states
  }
}

Bytes ChunkEditor::ReadCut(const ChunkCut& cut, uint64_t part, const RowRange& rows) {
  const RowTable& table = cut.value.rows();
  const size_t row_bytes = ChunkState::RowBytes(part, table.dtype(), table.row_elements());
  const Block out = pool_->Allocate(row_bytes * rows.count);
  if (part == ChunkState::kCandidates || part == ChunkState::kCandidateNotes) {
    const auto some = table.candidates().From(rows.first, rows.count);
    for (size_t i = 0; i < some.size(); ++i) {
      if (part == ChunkState::kCandidates) {
        out.as<uint64_t>()[i] = Unmix(some[i].mix);
      } else {
        out.as<RowNote>()[i] = some[i].note;
      }
    }
    return out.bytes();
  }
  const std::vector<uint64_t> mixes = table.MixesFrom(rows.first, rows.count);
  if (part == ChunkState::kIds) {
    for (size_t i = 0; i < mixes.size(); ++i) out.as<uint64_t>()[i] = Unmix(mixes[i]);
  } else if (part == ChunkState::kNotes) {
    table.ReadNotes(mixes, out.as<RowNote>());
  } else if (part == ChunkState::kValue) {
    table.Read(mixes, out.data);
  } else if (part == ChunkState::kMaster) {
    table.ReadMaster(mixes, out.data);
  } else {
    table.ReadState(part - ChunkState::kStates, mixes, out.data);
  }
  return out.bytes();
}

Bytes ChunkEditor::ReadCutRows(const ChunkCut& cut, std::span<const uint64_t> mixes) {
  const RowTable& table = cut.value.rows();
  const Block out = pool_->Allocate(mixes.size() * table.row_bytes());
  table.Read(mixes, out.data);
  return out.bytes();
}

void ChunkEditor::ReplaceRows(Chunk* chunk, const ChunkState& state, const Bytes& body) {
  const bool is_plain = state.by_rows && state.has_value && !state.has_master && !state.has_notes &&
                        state.arrays == 0 && state.scalars == 0 && state.candidates == 0;
  if (!is_plain || !chunk->value.by_rows() ||
      body.size != state.Bytes(chunk->dtype, chunk->elements)) {
    throw Fail(Code::kInvalidArgument, "{} bytes are not {} rows with their ids", body.size,
               state.rows);
  }
  const auto mixes = codec::MixesOf(chunk->bucket, body.data, state.rows);
  RowTable table = chunk->value.rows();  // shares pages
  table.Erase(mixes);
  ReservedRows reserved;
  table.Reserve(mixes, &reserved);
  table.Assign(reserved, {body.data + state.rows * sizeof(uint64_t), table.row_bytes(), nullptr},
               chunk->dtype);
  table.NoteImport(reserved);
  table.Settle();
  chunk->value.rows_ = std::move(table);
}

void ChunkEditor::RestoreRows(Chunk* chunk, const ChunkState& state, const Bytes& body, bool adds) {
  const DType dtype = chunk->dtype;
  const auto mixes = codec::MixesOf(chunk->bucket, body.data, state.rows);
  const RowTable& old = chunk->value.rows();
  RowTable table = adds || !state.has_value ? old : old.Emptied();  // shares pages
  if (!adds) {
    table.StartStates(state.arrays, state.has_master);
  } else if (old.state_count() != state.arrays || old.has_master() != state.has_master) {
    throw Fail(Code::kInvalidArgument, "more rows, with other states than those before them");
  }
  if (!adds && state.has_value) table.ContinueFrom(state.row_version);
  const size_t parts_end = body.size - state.PartBytes(ChunkState::kCandidates, dtype, 1) -
                           state.PartBytes(ChunkState::kCandidateNotes, dtype, 1);
  const std::byte* const candidates = body.data + parts_end;
  const auto candidate_mixes = codec::MixesOf(chunk->bucket, candidates, state.candidates);
  for (size_t i = 0; i < candidate_mixes.size(); ++i) {
    Candidate candidate{candidate_mixes[i], {}};
    std::memcpy(&candidate.note,
                candidates + state.candidates * sizeof(uint64_t) + i * sizeof(RowNote),
                sizeof(RowNote));
    if (table.policy().admit_count > 1) table.PutCandidate(candidate);
  }
  ReservedRows reserved;
  std::vector<Block> scalars(state.scalars);
  for (Block& scalar : scalars) scalar = pool_->Allocate(sizeof(double));
  std::vector<RowNote> notes(state.has_notes ? state.rows : 0);
  table.Reserve(mixes, &reserved);
  // Nothing fails from here on.
  size_t at = state.PartBytes(ChunkState::kIds, dtype, chunk->elements);
  if (state.has_notes) {
    const size_t bytes = state.PartBytes(ChunkState::kNotes, dtype, chunk->elements);
    if (bytes > 0) std::memcpy(notes.data(), body.data + at, bytes);
    at += bytes;
    if (table.policy().has_notes) table.AssignNotes(reserved, notes.data());
  }
  const auto take = [&](uint64_t part) {
    const size_t bytes = state.PartBytes(part, dtype, chunk->elements);
    const RowSource rows{body.data + at, state.rows == 0 ? 0 : bytes / state.rows, nullptr};
    at += bytes;
    return rows;
  };
  if (state.has_value) table.Assign(reserved, take(ChunkState::kValue), dtype);
  if (state.has_master) table.AssignMaster(reserved, take(ChunkState::kMaster));
  for (size_t s = 0; s < state.arrays; ++s) {
    table.AssignState(s, reserved, take(ChunkState::kStates + s));
  }
  for (Block& scalar : scalars) {
    std::memcpy(scalar.data, body.data + at, sizeof(double));
    at += sizeof(double);
  }
  table.Settle();
  chunk->value.rows_ = std::move(table);
  chunk->states = std::move(scalars);
  chunk->updates = state.updates;
  chunk->failure.reset();
}

}  // namespace tkv
