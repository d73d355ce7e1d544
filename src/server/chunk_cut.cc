// Cuts of chunks, and their values and states that a worker puts back.

#include <utility>

#include "base/format.h"
#include "server/chunk.h"

namespace tkv {

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

}  // namespace tkv
