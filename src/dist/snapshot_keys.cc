#include "dist/snapshot_keys.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "base/mix.h"
#include "store/snapshots.h"
#include "tkv/error.h"

namespace tkv {
namespace {

// Returns the counters and the update rule of a chunk.  If the key was saved in other chunks, all
// chunks get the same.
ChunkState StateOf(const SavedKey& saved, const KeyMeta& meta, uint32_t chunk, Parts parts) {
  ChunkState state;
  state.updates = saved.updates[saved.updates.size() == meta.chunk_count() ? chunk : 0];
  state.has_value = parts == Parts::kAll;
  state.has_master = saved.has_master;
  state.arrays = static_cast<uint8_t>(saved.arrays.size());
  state.scalars = static_cast<uint8_t>(saved.scalars.size());
  state.spec.program = saved.program.text;
  state.spec.multi_precision = saved.program.multi_precision;
  return state;
}

}  // namespace

SavedKey DescribeKey(const Key& name, const KeyMeta& meta, const std::vector<ChunkState>& states,
                     uint64_t round, Parts parts) {
  SavedKey key;
  key.key = name;
  key.dtype = meta.dtype;
  key.shape = meta.shape;
  key.is_async = meta.mode == KeyMeta::Mode::kAsync;
  key.deterministic = meta.deterministic;
  key.staleness = meta.staleness;
  key.round = round;
  key.chunk_elements = states.size() > 1 && !meta.by_rows() ? meta.chunk_elements : 0;
  if (meta.by_rows()) {
    key.by_rows = true;
    key.row_count = meta.row_count;
    key.initializer = meta.initializer;
    key.policy = meta.policy;
    if (meta.own) {
      key.own = {meta.own->program, meta.own->multi_precision, meta.own->params, meta.own->lazy};
    }
    for (const ChunkState& state : states) {
      key.rows += state.rows;
      key.candidates += state.candidates;
      key.row_version = std::max(key.row_version, state.row_version);
      key.policy.has_notes = state.has_notes;
    }
  }
  key.has_value = parts == Parts::kAll;
  key.updates.clear();
  for (const ChunkState& state : states) key.updates.push_back(state.updates);
  const auto updated = std::find_if(states.begin(), states.end(),
                                    [](const ChunkState& state) { return state.updates > 0; });
  if (updated == states.end()) return key;
  for (const ChunkState& state : states) {
    const bool fits = state.spec.program == updated->spec.program &&
                      state.spec.multi_precision == updated->spec.multi_precision &&
                      state.has_master == updated->has_master;
    // The first pushes of an asynchronous key under an optimizer are under way.
    if (!fits) {
      throw Fail(Code::kUnavailable, "key {}: the optimizer has not reached every chunk yet",
                 name.view().ToString());
    }
  }
  DescribeProgram(Program::Parse(updated->spec.program), updated->spec.multi_precision,
                  updated->spec.params, &key, updated->spec.lazy);
  key.has_master = updated->has_master;
  return key;
}

uint64_t RowsAtOnce(const SavedKey& saved, const KeyMeta& meta, Parts parts) {
  constexpr size_t kBytes = size_t{16} << 20;
  ChunkState state = StateOf(saved, meta, 0, parts);
  state.by_rows = true;
  state.rows = 1;
  const size_t bytes = state.Bytes(meta.dtype, meta.elements());
  if (bytes > kPartBytesMax) {
    throw Fail(Code::kResourceExhausted,
               "key {}: a row has {} bytes with its states, at most {} can be put back",
               saved.key.view().ToString(), bytes, kPartBytesMax);
  }
  return std::max<size_t>(1, kBytes / bytes);
}

RestoredKey GatherRows(const checkpoint::Reader& reader, size_t index, const KeyMeta& meta,
                       Parts parts, bool are_candidates, uint64_t first, uint64_t count) {
  const SavedKey& saved = reader.keys()[index];
  const uint32_t buckets = meta.buckets;
  const uint64_t ids_part = are_candidates ? ChunkState::kCandidates : ChunkState::kIds;
  std::vector<uint64_t> ids(count);
  reader.Read(index, ids_part, std::as_writable_bytes(std::span(ids)), first * sizeof(uint64_t));
  RestoredKey restored;
  restored.states.resize(buckets);
  size_t bytes = 0;
  auto next = ids.begin();
  for (uint32_t b = 0; b < buckets; ++b) {
    const auto end = std::partition_point(
        next, ids.end(), [&](uint64_t id) { return BucketOf(Mix(id), buckets) <= b; });
    ChunkState& state = restored.states[b];
    // A bucket that receives nothing is not changed.
    state.by_rows = true;
    const bool begins = first == 0 && !are_candidates;
    if (begins || end > next) {
      state = StateOf(saved, meta, b, parts);
      state.by_rows = true;
      state.row_version = saved.row_version;
      state.has_notes = saved.policy.has_notes && parts == Parts::kAll;
      (are_candidates ? state.candidates : state.rows) = static_cast<uint64_t>(end - next);
      bytes += state.Bytes(meta.dtype, meta.elements());
    }
    next = end;
    restored.ends.push_back(bytes);
  }
  restored.body = NDArray::Empty({static_cast<int64_t>(bytes)}, DType::kU8);
  auto* const body = static_cast<std::byte*>(restored.body.HostData());
  // The position of the next part of each bucket.
  std::vector<size_t> at(buckets);
  for (uint32_t b = 1; b < buckets; ++b) at[b] = restored.ends[b - 1];
  const auto deal = [&](uint64_t part, const std::byte* from) {
    for (uint32_t b = 0; b < buckets; ++b) {
      const ChunkState& state = restored.states[b];
      const size_t size = state.PartBytes(part, meta.dtype, meta.elements());
      if (size > 0) std::memcpy(body + at[b], from, size);
      at[b] += size;
      from += size;
    }
  };
  ChunkState whole = StateOf(saved, meta, 0, parts);
  whole.by_rows = true;
  whole.has_notes = saved.policy.has_notes && parts == Parts::kAll;
  std::vector<std::byte> block;
  const auto read_and_deal = [&](uint64_t part) {
    const size_t row_bytes = ChunkState::RowBytes(part, meta.dtype, meta.elements());
    block.resize(count * row_bytes);
    reader.Read(index, part, block, first * row_bytes);
    deal(part, block.data());
  };
  if (!are_candidates) {
    deal(ChunkState::kIds, reinterpret_cast<const std::byte*>(ids.data()));
    if (whole.has_notes) read_and_deal(ChunkState::kNotes);
    for (uint64_t part = 0; part < ChunkState::kStates + whole.arrays; ++part) {
      if (whole.HasPart(part)) read_and_deal(part);
    }
  }
  std::vector<double> scalars(saved.updates.size());
  for (uint64_t s = 0; s < whole.scalars; ++s) {
    reader.Read(index, ChunkState::kStates + whole.arrays + s,
                std::as_writable_bytes(std::span(scalars)));
    for (uint32_t b = 0; b < buckets; ++b) {
      if (restored.states[b].scalars == 0) continue;
      std::memcpy(body + at[b], &scalars[scalars.size() == buckets ? b : 0], sizeof(double));
      at[b] += sizeof(double);
    }
  }
  if (are_candidates) {
    deal(ids_part, reinterpret_cast<const std::byte*>(ids.data()));
    read_and_deal(ChunkState::kCandidateNotes);
  }
  return restored;
}

RestoredKey GatherValue(const checkpoint::Reader& reader, size_t index, const KeyMeta& meta,
                        Parts parts) {
  const SavedKey& saved = reader.keys()[index];
  RestoredKey restored;
  const uint32_t chunks = meta.chunk_count();
  size_t bytes = 0;
  for (uint32_t c = 0; c < chunks; ++c) {
    const ChunkState& state = restored.states.emplace_back(StateOf(saved, meta, c, parts));
    bytes += state.Bytes(meta.dtype, meta.elements_of(c));
    restored.ends.push_back(bytes);
  }
  restored.body = NDArray::Empty({static_cast<int64_t>(bytes)}, DType::kU8);
  auto* const body = static_cast<std::byte*>(restored.body.HostData());
  const ChunkState& first = restored.states[0];
  const uint64_t count = ChunkState::kStates + first.arrays + first.scalars;
  // The position of the next part of each chunk.
  std::vector<size_t> at(chunks);
  for (uint32_t c = 1; c < chunks; ++c) at[c] = restored.ends[c - 1];
  for (uint64_t part = 0; part < count; ++part) {
    if (!first.HasPart(part)) continue;
    size_t whole = 0;
    for (uint32_t c = 0; c < chunks; ++c) {
      whole += first.PartBytes(part, meta.dtype, meta.elements_of(c));
    }
    // A key that was saved in other chunks has no scalars for each chunk.
    const NDArray tensor = NDArray::Empty({static_cast<int64_t>(whole)}, DType::kU8);
    auto* const data = static_cast<std::byte*>(tensor.HostData());
    reader.Read(index, part, {data, whole});
    size_t from = 0;
    for (uint32_t c = 0; c < chunks; ++c) {
      const size_t size = first.PartBytes(part, meta.dtype, meta.elements_of(c));
      if (size > 0) std::memcpy(body + at[c], data + from, size);
      at[c] += size;
      from += size;
    }
  }
  return restored;
}

}  // namespace tkv
