// Checks saved versions of sparse keys: the rows, notes, values and candidates of a version.

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "base/mix.h"
#include "simulation/model.h"

namespace tkv::simulation {
namespace {

template <typename T>
std::vector<T> Items(const std::map<uint64_t, Bytes>& parts, uint64_t part) {
  const auto found = parts.find(part);
  if (found == parts.end()) return {};
  std::vector<T> items(found->second.size / sizeof(T));
  if (!items.empty()) std::memcpy(items.data(), found->second.data, items.size() * sizeof(T));
  return items;
}

// Returns true if the ids ascend by their mixes and belong to the bucket.
bool AreOf(const SimKey& key, uint32_t bucket, const std::vector<uint64_t>& ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (BucketOf(Mix(ids[i]), key.meta.buckets) != bucket) return false;
    if (i > 0 && Mix(ids[i - 1]) >= Mix(ids[i])) return false;
  }
  return true;
}

bool RowHasLane(const SimKey& key, const std::byte* row, int64_t lane) {
  for (size_t at = 0; at < key.meta.row_bytes(); at += ItemSize(key.meta.dtype)) {
    if (Load(key.meta.dtype, row + at) != Wrap(key.meta.dtype, lane)) return false;
  }
  return true;
}

}  // namespace

// Returns an empty text if the saved parts are those of the version, or the difference.  Expired
// rows may be included until their memory is freed: they read as initial rows, and their notes show
// their age.
std::string Model::KeptOf(const SimKey& key, uint32_t index, const ChunkState& state,
                          const std::map<uint64_t, Bytes>& parts, const Version& version) const {
  const RowPolicy& policy = key.meta.policy;
  const auto ids = Items<uint64_t>(parts, ChunkState::kIds);
  const auto notes = Items<RowNote>(parts, ChunkState::kNotes);
  const auto candidates = Items<uint64_t>(parts, ChunkState::kCandidates);
  const auto counts = Items<RowNote>(parts, ChunkState::kCandidateNotes);
  const bool needs_notes = policy.has_notes || policy.age_max > 0 ||
                           (policy.rows_max > 0 && policy.score != RowPolicy::Score::kNorm);
  if (state.has_notes != needs_notes) return needs_notes ? "it lacks notes" : "it has notes";
  if (ids.size() != state.rows || notes.size() != (needs_notes ? ids.size() : 0) ||
      candidates.size() != state.candidates || counts.size() != candidates.size()) {
    return "its parts are of other rows";
  }
  if (!AreOf(key, index, ids) || !AreOf(key, index, candidates)) return "its ids are out of order";
  SeenRows seen;
  seen.version = state.row_version;
  seen.has_notes = needs_notes;
  for (size_t i = 0; i < ids.size(); ++i) {
    const RowNote note = needs_notes ? notes[i] : RowNote{};
    if (ids[i] >= kRowIds) continue;
    const std::byte* const row = parts.at(ChunkState::kValue).data + i * key.meta.row_bytes();
    if (!RowHasLane(key, row, version.lanes[ids[i]])) {
      return Format("row {} has another value", ids[i]);
    }
    if (!IsGone(policy, state.row_version, note)) seen.rows[ids[i]] = note;
  }
  for (size_t i = 0; i < candidates.size(); ++i) seen.candidates[candidates[i]] = counts[i];
  return version.rows.Compare(key, index, seen);
}

void Model::Kept(size_t key, Life life, uint64_t last, const std::vector<ChunkState>& states,
                 const std::map<uint64_t, Block>& parts, const Bytes& by_ids) {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return;
  const SimKey& sim = scenario_.keys[key];
  std::map<uint64_t, size_t> at;  // for each part, the bytes of the previous buckets
  const std::byte* row = by_ids.data;
  for (uint32_t c = 0; c < states.size(); ++c) {
    const ChunkModel& model = found->second.chunks[c];
    const std::string where = Describe(key, c, states[c].version);
    const auto version = model.versions.find(states[c].version);
    if (version == model.versions.end()) return Violate(where + ": what is kept was never there");
    const auto own = model.applied_in.find({life, last});
    if (own != model.applied_in.end() && own->second > states[c].version) {
      return Violate(Format("{}: it is kept without push {} of worker {}", where, last, life.rank));
    }
    std::map<uint64_t, Bytes> mine;
    for (const auto& [part, block] : parts) {
      const size_t bytes = states[c].PartBytes(part, sim.meta.dtype, sim.meta.elements());
      mine[part] = {block.data + at[part], bytes, nullptr};
      at[part] += bytes;
    }
    const std::string why = KeptOf(sim, c, states[c], mine, version->second);
    if (!why.empty()) return Violate(Format("{}: what is kept of it: {}", where, why));
    for (const uint64_t id : RowsOf(sim, c, kAllRows)) {
      if (!RowHasLane(sim, row, version->second.lanes[id])) {
        return Violate(Format("{}: what is kept of row {} reads as another value", where, id));
      }
      row += sim.meta.row_bytes();
    }
  }
}

}  // namespace tkv::simulation
