#include "simulation/row_truth.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/format.h"
#include "base/mix.h"

namespace tkv::simulation {

int64_t Updated(const SimKey& key, int64_t before, int64_t sum, bool accumulate) {
  const uint64_t whole =
      static_cast<uint64_t>(sum) + static_cast<uint64_t>(accumulate ? before : 0);
  return Wrap(key.meta.dtype, static_cast<int64_t>(whole));
}

RowTruth::RowTruth(RowSet initial) {
  for (size_t id = 0; id < rows_.size(); ++id) rows_[id].is_there = (initial >> id & 1) != 0;
}

void RowTruth::Advance(const SimKey& key, uint32_t chunk, RowSet pushed, const Lanes& sum,
                       bool accumulate, Lanes* lanes) {
  const RowPolicy& policy = key.meta.policy;
  for (const uint64_t id : RowsOf(key, chunk, pushed)) {
    Row& row = rows_[id];
    if (!row.is_there) {
      row.candidate = {now_ + 1, row.candidate.count + 1};
      if (row.candidate.count < policy.admit_count) continue;  // its value is dropped
      row = {true, {}, {}};
    }
    row.note = {now_ + 1, row.note.count + 1};
    (*lanes)[id] = Updated(key, (*lanes)[id], sum[id], accumulate);
  }
  ++now_;
  const std::vector<uint64_t> ids = RowsOf(key, chunk, kAllRows);
  for (const uint64_t id : ids) {
    Row& row = rows_[id];
    if (IsGone(policy, now_, row.candidate)) row.candidate = {};
    if (!row.is_there || !IsGone(policy, now_, row.note)) continue;
    row = {};
    (*lanes)[id] = static_cast<int64_t>(key.meta.initializer.a);
  }
  if (policy.rows_max > 0) Trim(key, ids, lanes);
}

void RowTruth::Clear(const SimKey& key, uint32_t chunk, Lanes* lanes) {
  for (const uint64_t id : RowsOf(key, chunk, kAllRows)) {
    rows_[id] = {};
    (*lanes)[id] = static_cast<int64_t>(key.meta.initializer.a);
  }
}

// Removes the rows with the lowest scores.  All elements of a row are equal, so one element orders
// rows as their norm does.
void RowTruth::Trim(const SimKey& key, const std::vector<uint64_t>& ids, Lanes* lanes) {
  const RowPolicy& policy = key.meta.policy;
  const uint64_t most = (policy.rows_max + key.meta.buckets - 1) / key.meta.buckets;
  std::vector<std::pair<uint64_t, uint64_t>> scores;
  for (const uint64_t id : ids) {
    const Row& row = rows_[id];
    if (!row.is_there) continue;
    const uint64_t score = policy.score == RowPolicy::Score::kAge ? row.note.version
                           : policy.score == RowPolicy::Score::kCount
                               ? row.note.count
                               : static_cast<uint64_t>(std::abs((*lanes)[id]));
    scores.emplace_back(score, Mix(id));
  }
  if (scores.size() <= most) return;
  std::sort(scores.begin(), scores.end());
  scores.resize(scores.size() - most + most / 16);
  for (const auto& [score, mix] : scores) {
    rows_[Unmix(mix)] = {};
    (*lanes)[Unmix(mix)] = static_cast<int64_t>(key.meta.initializer.a);
  }
}

std::string RowTruth::Compare(const SimKey& key, uint32_t chunk, const SeenRows& seen) const {
  if (seen.version != now_) return Format("its rows are of version {}", seen.version);
  const auto find = [](const std::map<uint64_t, RowNote>& notes, uint64_t id) {
    const auto found = notes.find(id);
    return found == notes.end() ? std::nullopt : std::optional(found->second);
  };
  size_t rows = 0;
  for (const uint64_t id : RowsOf(key, chunk, kAllRows)) {
    const Row& row = rows_[id];
    const auto note = find(seen.rows, id);
    if (note.has_value() != row.is_there) {
      return Format("row {} is {}there", id, row.is_there ? "not " : "");
    }
    rows += row.is_there ? 1 : 0;
    if (note && seen.has_notes && *note != row.note) {
      return Format("row {} has come {} times, last in version {}, and not {} times, last in {}",
                    id, note->count, note->version, row.note.count, row.note.version);
    }
    RowNote counted = find(seen.candidates, id).value_or(RowNote{});
    if (IsGone(key.meta.policy, now_, counted)) counted = {};
    if (counted != row.candidate) {
      return Format("id {} is counted {} times, last in version {}, and not {} times, last in {}",
                    id, counted.count, counted.version, row.candidate.count, row.candidate.version);
    }
  }
  return rows == seen.rows.size() ? "" : "it has rows of other buckets";
}

bool IsGone(const RowPolicy& policy, uint64_t now, const RowNote& note) {
  return policy.age_max > 0 && now > note.version && now - note.version > policy.age_max;
}

SeenRows RowsIn(const RowTable& table) {
  SeenRows seen;
  seen.version = table.version();
  seen.has_notes = table.policy().has_notes;
  for (const uint64_t mix : table.Mixes(0, table.size())) {
    if (Unmix(mix) >= kRowIds || !table.Contains(mix)) continue;
    RowNote& note = seen.rows[Unmix(mix)];
    if (seen.has_notes) table.ReadNotes({&mix, 1}, &note);
  }
  for (const auto& candidate : table.candidates().From(0, table.candidates().size())) {
    seen.candidates[Unmix(candidate.mix)] = candidate.note;
  }
  return seen;
}

}  // namespace tkv::simulation
