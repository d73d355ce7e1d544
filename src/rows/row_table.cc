#include "rows/row_table.h"

#include <algorithm>
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

constexpr size_t kSweptMin = 64;  // rows that are looked at in each version, at least

}  // namespace

RowTable::RowTable(DType dtype, size_t row_elements, const RowInitializer& initializer,
                   uint32_t buckets, const RowPolicy& policy, std::shared_ptr<RowDisk> disk)
    : initial_(dtype, row_elements, initializer),
      policy_(CheckedPolicy(policy, dtype)),
      storage_(dtype, row_elements, policy_.has_notes, buckets,
               (policy_.memory_max + buckets - 1) / buckets, std::move(disk)),
      clock_(policy_.age_max),
      admission_(policy_.admit_count, buckets),
      eviction_(policy_, buckets) {}

RowTable RowTable::Emptied() const {
  RowTable table(dtype(), row_elements(), initial_.initializer(), storage_.index().buckets(),
                 policy_, storage_.spill().disk());
  table.StartStates(state_count(), has_master());
  table.clock_ = clock_;
  table.evicted_ = evicted_;
  return table;
}

TableStats RowTable::Stats() const noexcept {
  const RowSpill& spill = storage_.spill();
  return {size(),           candidates().size(), evicted_,          memory_bytes(),
          clock_.version(), spill.size(),        spill.disk_bytes()};
}

// -----------------------------------------------------------------------------------------------------------------
// reads

bool RowTable::Contains(uint64_t mix) const noexcept {
  const uint64_t place = storage_.index().Find(mix);
  return place != RowIndex::kNowhere &&
         !(clock_.expires() && clock_.HasExpired(storage_.NoteOf(place)));
}

void RowTable::Read(std::span<const uint64_t> mixes, void* out) const {
  static constexpr std::byte kOnDisk{};  // stands for a record on the disk
  auto* const rows = static_cast<std::byte*>(out);
  const RowPages& pages = this->pages();
  const size_t bytes = row_bytes();
  const bool expires = clock_.expires();
  const auto found = [&](uint64_t place) -> const std::byte* {
    if (place == RowIndex::kNowhere) return nullptr;
    if (expires && clock_.HasExpired(storage_.NoteOf(place))) return nullptr;
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
    if (clock_.expires()) Evict(eviction_.ExpiredOf(mixes, storage_, clock_));
    Prepare(mixes, true, reserved);
  });
}

void RowTable::Prepare(std::span<const uint64_t> mixes, bool is_push, ReservedRows* reserved) {
  reserved->new_candidates_.clear();
  const size_t missing = storage_.Locate(mixes, reserved);
  if (is_push && admission_.counts()) reserved->new_candidates_.reserve(missing);
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
  const bool counts = is_push && admission_.counts();
  for (size_t i = 0; i < mixes.size(); ++i) {
    if (reserved->places_[i] != RowIndex::kNowhere) continue;
    if (counts) {
      const RowAdmission::Decision decision = admission_.Decide(mixes[i], clock_);
      if (decision == RowAdmission::Decision::kNewCandidate) {
        reserved->new_candidates_.push_back(static_cast<uint32_t>(i));
      }
      if (decision != RowAdmission::Decision::kRow) continue;
    }
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
    if (policy_.has_notes) *pages().NoteAt(place) = {clock_.version(), 0};
  }
}

void RowTable::TakeBack(std::span<const uint64_t> mixes, const ReservedRows& reserved) noexcept {
  storage_.TakeBack(mixes, reserved);
  for (const uint32_t i : reserved.new_candidates_) admission_.Forget(mixes[i]);
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
  ForEach(reserved, [&](size_t i, std::byte*) {
    *pages().NoteAt(reserved.places_[i]) = {clock_.version() + 1, 0};
  });
}

// -----------------------------------------------------------------------------------------------------------------
// which rows there are

void RowTable::NotePush(std::span<const uint64_t> mixes, const ReservedRows& reserved) noexcept {
  const auto& all = reserved.places_;
  pushed_ += all.size();
  if (admission_.counts()) {
    // The segments are not shared, so nothing is copied.
    for (const uint32_t i : reserved.made_) admission_.Forget(mixes[i]);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (policy_.has_notes && i + kPrefetchedRows < all.size() &&
        all[i + kPrefetchedRows] != RowIndex::kNowhere) {
      __builtin_prefetch(pages().NoteAt(all[i + kPrefetchedRows]));
    }
    if (all[i] == RowIndex::kNowhere) {
      admission_.Count(mixes[i], clock_);
    } else if (policy_.has_notes) {
      RowNote& note = *pages().NoteAt(all[i]);
      note = clock_.Pushed(note);
    }
  }
}

// Looks at as many rows as were pushed, so that tables do not grow without bound.
void RowTable::Advance() noexcept {
  clock_.Advance();
  const size_t count = kSweptMin + std::exchange(pushed_, 0);
  try {
    if (clock_.expires()) {
      Evict(eviction_.NextExpired(storage_, clock_, count));
      admission_.RemoveExpired(clock_, count);
    }
    Evict(eviction_.Surplus(storage_, clock_));
  } catch (const std::exception& error) {
    static_cast<void>(error);  // no memory to remove rows: a later version tries again
  }
  Settle();
}

void RowTable::Evict(std::span<const uint64_t> mixes) {
  if (mixes.empty()) return;
  const size_t rows = size();
  try {
    Erase(mixes);
  } catch (...) {
    evicted_ += rows - size();
    throw;
  }
  evicted_ += rows - size();
}

void RowTable::Erase(std::span<const uint64_t> mixes) {
  WithRowMemory([&] {
    storage_.ReserveErase(mixes.size());
    for (const uint64_t mix : mixes) {
      storage_.Erase(mix);
      admission_.Forget(mix);
    }
  });
}

void RowTable::PutCandidate(const Candidate& candidate) {
  WithRowMemory([&] { admission_.Put(candidate); });
}

}  // namespace tkv
