#include "rows/row_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <utility>

#include "base/mix.h"
#include "kernels/kernels.h"
#include "rows/checked_policy.h"
#include "rows/prefetch.h"
#include "rows/row_memory.h"
#include "rows/update_queue.h"

namespace tkv {
namespace {

constexpr size_t kSweptMin = 64;  // rows that Sweep examines in each version, at least
// If there are too many rows, 1/16 of the maximum is removed as well.
constexpr uint64_t kTrimmed = 16;

}  // namespace

RowTable::RowTable(DType dtype, size_t row_elements, const RowInitializer& initializer,
                   uint32_t buckets, const RowPolicy& policy, std::shared_ptr<RowDisk> disk)
    : initial_(dtype, row_elements, initializer),
      policy_(CheckedPolicy(policy, dtype)),
      storage_(dtype, row_elements, policy_.has_notes, buckets,
               (policy_.memory_max + buckets - 1) / buckets, std::move(disk)),
      candidates_(buckets) {}

RowTable RowTable::Emptied() const {
  RowTable table(dtype(), row_elements(), initial_.initializer(), storage_.index().buckets(),
                 policy_, storage_.spill().disk());
  table.now_ = now_;
  table.evicted_ = evicted_;
  return table;
}

TableStats RowTable::Stats() const noexcept {
  const RowSpill& spill = storage_.spill();
  return {size(), candidates_.size(), evicted_,          memory_bytes(),
          now_,   spill.size(),       spill.disk_bytes()};
}

// -----------------------------------------------------------------------------------------------------------------
// reads

bool RowTable::Contains(uint64_t mix) const noexcept {
  const uint64_t place = storage_.index().Find(mix);
  return place != RowIndex::kNowhere && !(policy_.age_max > 0 && IsGone(storage_.NoteOf(place)));
}

void RowTable::Read(std::span<const uint64_t> mixes, void* out) const {
  static constexpr std::byte kOnDisk{};  // stands for a record on the disk
  auto* const rows = static_cast<std::byte*>(out);
  const RowPages& pages = this->pages();
  const size_t bytes = row_bytes();
  const bool expires = policy_.age_max > 0;
  const auto found = [&](uint64_t place) -> const std::byte* {
    if (place == RowIndex::kNowhere) return nullptr;
    if (expires && IsGone(storage_.NoteOf(place))) return nullptr;
    if (RowSpill::IsOnDisk(place)) return &kOnDisk;
    const std::byte* const record = pages.At(place);
    PrefetchBytes(record, bytes);
    return record;
  };
  std::vector<RowSpill::Row> on_disk;
  storage_.index().FindAll(mixes, found, [&](size_t i, const std::byte* record) {
    std::byte* const row = rows + i * bytes;
    if (record == nullptr) {
      initial_.Write(Unmix(mixes[i]), row);
    } else if (record == &kOnDisk) {
      on_disk.push_back({i, storage_.index().Find(mixes[i])});
    } else {
      std::memcpy(row, record, bytes);
    }
  });
  storage_.spill().Read(on_disk, bytes, [&](size_t i, uint64_t, const std::byte* record) {
    std::memcpy(rows + i * bytes, record, bytes);
  });
}

std::vector<uint64_t> RowTable::Mixes(uint64_t first, size_t count_max) const {
  std::vector<uint64_t> mixes;
  mixes.reserve(std::min(count_max, size()));
  if (count_max == 0) return mixes;
  storage_.index().ForEach(first, [&](uint64_t mix, uint64_t) {
    mixes.push_back(mix);
    return mixes.size() < count_max;
  });
  return mixes;
}

std::vector<uint64_t> RowTable::MixesFrom(uint64_t number, size_t count_max) const {
  if (number >= size()) return {};
  return Mixes(storage_.index().MixAt(number), count_max);
}

void RowTable::ReadMaster(std::span<const uint64_t> mixes, void* out) const {
  auto* const rows = static_cast<std::byte*>(out);
  storage_.Read(mixes, [&](size_t i, uint64_t place, const std::byte* record) {
    std::byte* const row = rows + i * wide_bytes();
    if (has_master() && storage_.HasStates(place)) {
      std::memcpy(row, pages().MasterOf(record), wide_bytes());
    } else {
      kernels::Convert(dtype(), record, compute(), row, row_elements());
    }
  });
}

void RowTable::ReadState(size_t number, std::span<const uint64_t> mixes, void* out) const {
  auto* const rows = static_cast<std::byte*>(out);
  storage_.Read(mixes, [&](size_t i, uint64_t place, const std::byte* record) {
    std::byte* const row = rows + i * wide_bytes();
    if (number < state_count() && storage_.HasStates(place)) {
      std::memcpy(row, pages().StateOf(record, number), wide_bytes());
    } else {
      std::memset(row, 0, wide_bytes());
    }
  });
}

void RowTable::ReadNotes(std::span<const uint64_t> mixes, RowNote* out) const noexcept {
  storage_.index().FindAll(mixes, [&](size_t i, uint64_t place) {
    if (place != RowIndex::kNowhere) out[i] = storage_.NoteOf(place);
  });
}

// -----------------------------------------------------------------------------------------------------------------
// batches that are written

void RowTable::Reserve(std::span<const uint64_t> mixes, ReservedRows* reserved) {
  WithRowMemory([&] { Prepare(mixes, false, reserved); });
}

void RowTable::Admit(std::span<const uint64_t> mixes, ReservedRows* reserved) {
  WithRowMemory([&] {
    if (policy_.age_max > 0) DropGone(mixes);
    Prepare(mixes, true, reserved);
  });
}

void RowTable::Prepare(std::span<const uint64_t> mixes, bool is_push, ReservedRows* reserved) {
  reserved->new_candidates_.clear();
  const size_t missing = storage_.Locate(mixes, reserved);
  if (is_push && policy_.admit_count > 1) reserved->new_candidates_.reserve(missing);
  try {
    if (missing > 0) Make(mixes, is_push, reserved);
    storage_.MakeWritable(mixes, *reserved);
  } catch (...) {
    TakeBack(mixes, *reserved);
    throw;
  }
  Start(mixes, *reserved);
}

// Makes the missing rows, those of a push if they are admitted.  If it throws, TakeBack removes the
// rows made so far.
void RowTable::Make(std::span<const uint64_t> mixes, bool is_push, ReservedRows* reserved) {
  const bool counts = is_push && policy_.admit_count > 1;
  for (size_t i = 0; i < mixes.size(); ++i) {
    if (reserved->places_[i] != RowIndex::kNowhere) continue;
    if (counts && !LetsIn(mixes[i], static_cast<uint32_t>(i), reserved)) continue;
    storage_.Make(mixes, i, reserved);
  }
}

// Writes the initial values of the rows that were made.
void RowTable::Start(std::span<const uint64_t> mixes, const ReservedRows& reserved) noexcept {
  for (const uint32_t i : reserved.made_) {
    const uint64_t place = reserved.places_[i];
    std::byte* const record = pages().At(place);
    initial_.Write(Unmix(mixes[i]), record);
    pages().Start(record, record);
    if (policy_.has_notes) *pages().NoteAt(place) = {now_, 0};
  }
}

void RowTable::TakeBack(std::span<const uint64_t> mixes, const ReservedRows& reserved) noexcept {
  storage_.TakeBack(mixes, reserved);
  for (const uint32_t i : reserved.new_candidates_) candidates_.Erase(mixes[i]);
}

void RowTable::ReserveAll() {
  WithRowMemory([&] { storage_.MakeAllWritable(); });
}

template <typename F>
void RowTable::ForEach(const ReservedRows& reserved, F f) noexcept {
  const auto& all = reserved.places_;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i + kPrefetchedRows < all.size() && all[i + kPrefetchedRows] != RowIndex::kNowhere) {
      pages().Prefetch(all[i + kPrefetchedRows]);
    }
    if (all[i] != RowIndex::kNowhere) f(i, pages().At(all[i]));
  }
}

void RowTable::Assign(const ReservedRows& reserved, const RowSource& values, DType from) noexcept {
  ForEach(reserved, [&](size_t i, std::byte* record) {
    if (from == dtype()) {
      std::memcpy(record, values.at(i), row_bytes());
    } else {
      kernels::Convert(from, values.at(i), dtype(), record, row_elements());
    }
    if (has_master()) {
      kernels::Convert(dtype(), record, compute(), pages().PartsOf(record).master, row_elements());
    }
  });
}

void RowTable::AssignMaster(const ReservedRows& reserved, const RowSource& values) noexcept {
  if (!has_master()) return;
  ForEach(reserved, [&](size_t i, std::byte* record) {
    std::memcpy(pages().PartsOf(record).master, values.at(i), wide_bytes());
  });
}

void RowTable::AssignState(size_t number, const ReservedRows& reserved,
                           const RowSource& values) noexcept {
  if (number >= state_count()) return;
  ForEach(reserved, [&](size_t i, std::byte* record) {
    const RowParts parts = pages().PartsOf(record);
    std::memcpy(parts.states + number * parts.state_bytes, values.at(i), wide_bytes());
  });
}

void RowTable::Update(RowUpdate* update, std::span<const uint64_t> mixes,
                      const ReservedRows& reserved, const RowSource& sums) noexcept {
  UpdateQueue queue(pages(), update);
  const auto& all = reserved.places_;
  for (size_t i = 0; i < all.size(); ++i) {
    if (sums.list != nullptr && i + kPrefetchedRows < all.size()) {
      PrefetchBytes(sums.at(i + kPrefetchedRows), wide_bytes());
    }
    if (all[i] != RowIndex::kNowhere) queue.Add(all[i], mixes[i], sums.at(i));
  }
}

void RowTable::UpdateAll(RowUpdate* update, std::span<const uint64_t> mixes,
                         const RowSource& sums) noexcept {
  UpdateQueue queue(pages(), update);
  size_t next = 0;
  storage_.index().ForEach(0, [&](uint64_t mix, uint64_t place) {
    while (next < mixes.size() && mixes[next] < mix) ++next;  // ids that the policy did not admit
    const bool is_summed = next < mixes.size() && mixes[next] == mix;
    queue.Add(place, mix, is_summed ? sums.at(next++) : update->zeros());
    return true;
  });
}

void RowTable::AssignNotes(const ReservedRows& reserved, const RowNote* notes) noexcept {
  ForEach(reserved, [&](size_t i, std::byte*) { *pages().NoteAt(reserved.places_[i]) = notes[i]; });
}

void RowTable::NoteImport(const ReservedRows& reserved) noexcept {
  if (!policy_.has_notes) return;
  ForEach(reserved,
          [&](size_t i, std::byte*) { *pages().NoteAt(reserved.places_[i]) = {now_ + 1, 0}; });
}

// -----------------------------------------------------------------------------------------------------------------
// which rows there are

// Returns the candidate's note, or an empty note if there is none or its last push is older than
// the policy's `age_max`.
RowNote RowTable::CandidateOf(uint64_t mix) const noexcept {
  const RowNote note = candidates_.NoteOf(mix);
  return policy_.age_max > 0 && IsGone(note) ? RowNote{} : note;
}

// Returns true if this push admits the id.  Reserves the space that NotePush needs, so that
// NotePush cannot fail.
bool RowTable::LetsIn(uint64_t mix, uint32_t number, ReservedRows* reserved) {
  if (CandidateOf(mix).count + 1 >= policy_.admit_count) {
    candidates_.MakeWritable(mix);
    return true;
  }
  if (candidates_.Reserve(mix, now_)) reserved->new_candidates_.push_back(number);
  return false;
}

void RowTable::NotePush(std::span<const uint64_t> mixes, const ReservedRows& reserved) noexcept {
  const auto& all = reserved.places_;
  pushed_ += all.size();
  if (policy_.admit_count > 1) {
    for (const uint32_t i : reserved.made_)
      candidates_.Erase(mixes[i]);  // the segment is not shared, so nothing is copied
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (policy_.has_notes && i + kPrefetchedRows < all.size() &&
        all[i + kPrefetchedRows] != RowIndex::kNowhere) {
      __builtin_prefetch(pages().NoteAt(all[i + kPrefetchedRows]));
    }
    if (all[i] == RowIndex::kNowhere) {
      candidates_.Set(mixes[i], {now_ + 1, CandidateOf(mixes[i]).count + 1});
    } else if (policy_.has_notes) {
      RowNote& note = *pages().NoteAt(all[i]);
      note = {now_ + 1, note.count + 1};
    }
  }
}

void RowTable::Advance() noexcept {
  ++now_;
  const size_t pushed = std::exchange(pushed_, 0);
  try {
    if (policy_.age_max > 0) Sweep(kSweptMin + pushed);
    if (policy_.rows_max > 0) Trim();
  } catch (const std::exception& error) {
    static_cast<void>(error);  // no memory to remove rows: a later version tries again
  }
  Settle();
}

// Removes rows of the batch that have expired, so that a push makes them anew.
void RowTable::DropGone(std::span<const uint64_t> mixes) {
  WithRowMemory([&] {
    std::vector<uint64_t> gone;
    storage_.index().FindAll(
        mixes,
        [&](uint64_t place) {
          if (place != RowIndex::kNowhere && !RowSpill::IsOnDisk(place)) {
            __builtin_prefetch(pages().NoteAt(place));
          }
          return place;
        },
        [&](size_t i, uint64_t place) {
          if (place != RowIndex::kNowhere && IsGone(storage_.NoteOf(place)))
            gone.push_back(mixes[i]);
        });
    Erase(gone);
    evicted_ += gone.size();
  });
}

// Removes expired rows among the next `count` rows, and expired candidates among the next `count`
// candidates.  The count follows the number of pushed rows, so that tables do not grow without
// bound.
void RowTable::Sweep(size_t count) {
  std::vector<uint64_t> gone;
  const auto look = [&](const auto& all, uint64_t* next, auto note_of) {
    gone.clear();
    size_t left = count;
    // The next call begins anew if this one reaches the end.
    const uint64_t first = std::exchange(*next, 0);
    all.ForEach(first, [&](uint64_t mix, const auto& found) {
      if (left-- == 0) {
        *next = mix;
        return false;
      }
      if (IsGone(note_of(found))) gone.push_back(mix);
      return true;
    });
  };
  look(storage_.index(), &next_row_, [&](uint64_t place) { return storage_.NoteOf(place); });
  Erase(gone);
  evicted_ += gone.size();
  look(candidates_, &next_candidate_, [](const RowNote& note) { return note; });
  for (const uint64_t mix : gone) candidates_.Erase(mix);
}

double RowTable::ScoreOf(uint64_t place, std::byte* wide) const noexcept {
  switch (policy_.score) {
    case RowPolicy::Score::kAge:
      return static_cast<double>(storage_.NoteOf(place).version);
    case RowPolicy::Score::kCount:
      return static_cast<double>(storage_.NoteOf(place).count);
    case RowPolicy::Score::kNorm:
      break;
  }
  kernels::Convert(dtype(), pages().At(place), compute(), wide, row_elements());
  double sum = 0;
  for (size_t i = 0; i < row_elements(); ++i) {
    const double x = compute() == DType::kF64 ? reinterpret_cast<const double*>(wide)[i]
                                              : reinterpret_cast<const float*>(wide)[i];
    sum += x * x;
  }
  return std::isnan(sum) ? -1 : sum;  // a row with NaN is evicted first
}

// Removes the rows with the lowest scores if there are too many.  Expired rows do not count, and
// are removed, too.
void RowTable::Trim() {
  const uint64_t most =
      (policy_.rows_max + storage_.index().buckets() - 1) / storage_.index().buckets();
  if (size() <= most) return;
  std::vector<std::pair<double, uint64_t>> scores;
  scores.reserve(size());
  std::vector<uint64_t> lost;
  std::vector<std::byte> wide(wide_bytes());
  storage_.index().ForEach(0, [&](uint64_t mix, uint64_t place) {
    if (policy_.age_max > 0 && IsGone(storage_.NoteOf(place))) {
      lost.push_back(mix);
    } else {
      scores.emplace_back(ScoreOf(place, wide.data()), mix);
    }
    return true;
  });
  if (scores.size() > most) {
    const size_t surplus = scores.size() - most + most / kTrimmed;
    const auto end = scores.begin() + static_cast<ptrdiff_t>(surplus);
    std::nth_element(scores.begin(), end, scores.end());
    for (auto at = scores.begin(); at != end; ++at) lost.push_back(at->second);
    std::sort(lost.begin(), lost.end());
  }
  Erase(lost);
  evicted_ += lost.size();
}

void RowTable::Erase(std::span<const uint64_t> mixes) {
  WithRowMemory([&] {
    storage_.ReserveErase(mixes.size());
    for (const uint64_t mix : mixes) {
      storage_.Erase(mix);
      if (candidates_.size() > 0) candidates_.Erase(mix);
    }
  });
}

void RowTable::PutCandidate(const Candidate& candidate) {
  WithRowMemory([&] { candidates_.Put(candidate); });
}

}  // namespace tkv
