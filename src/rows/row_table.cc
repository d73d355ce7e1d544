#include "rows/row_table.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "base/format.h"
#include "base/mix.h"
#include "kernels/kernels.h"
#include "rows/checked_policy.h"
#include "rows/update_queue.h"

namespace tkv {
namespace {

constexpr size_t kReading = 64;  // rows that are prefetched from the disk at a time
// Limits of the rows that may be in memory beyond twice the bound.
constexpr size_t kSlackMax = 4096;
constexpr size_t kSlackBytes = size_t{1} << 20;
constexpr std::chrono::seconds kDiskPatience{1};
constexpr int kIdleMax = 3;
constexpr size_t kSweptMin = 64;  // rows that Sweep examines in each version, at least
// If there are too many rows, 1/16 of the maximum is removed as well.
constexpr uint64_t kTrimmed = 16;

template <typename F>
auto WithMemory(F f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    throw Fail(Code::kResourceExhausted, "no memory for rows");
  }
}

}  // namespace

RowTable::RowTable(DType dtype, size_t row_elements, const RowInitializer& initializer,
                   uint32_t buckets, const RowPolicy& policy, std::shared_ptr<RowDisk> disk)
    : initial_(dtype, row_elements, initializer),
      policy_(CheckedPolicy(policy, dtype)),
      pages_(dtype, row_elements, policy_.has_notes, (policy_.memory_max + buckets - 1) / buckets,
             std::move(disk)),
      index_(buckets),
      candidates_(buckets) {}

RowTable RowTable::Emptied() const {
  RowTable table(dtype(), row_elements(), initial_.initializer(), index_.buckets(), policy_,
                 pages_.disk() == nullptr ? nullptr : pages_.disk()->disk());
  table.now_ = now_;
  table.evicted_ = evicted_;
  return table;
}

TableStats RowTable::Stats() const noexcept {
  const DiskPages* const disk = pages_.disk();
  return {size(),
          candidates_.size(),
          evicted_,
          memory_bytes(),
          now_,
          pages_.disk_rows(),
          disk == nullptr ? 0 : disk->disk_bytes()};
}

size_t RowTable::memory_bytes() const noexcept {
  return index_.memory_bytes() + candidates_.memory_bytes() + pages_.memory_bytes();
}

// -----------------------------------------------------------------------------------------------------------------
// batches

// Looks up each row of a batch.  Meanwhile prefetches index entries and records of the next rows,
// as many as a core can wait for.
//   found  called with a row's place or kNowhere; its result is passed to `use` later
template <typename Found, typename Use>
void RowTable::Walk(std::span<const uint64_t> mixes, Found found, Use use) const {
  const size_t count = mixes.size();
  std::array<const RowIndex::Entry*, kPrefetchedRows> homes;
  std::array<std::invoke_result_t<Found&, uint64_t>, kPrefetchedRows> rows;
  for (size_t i = 0; i < count + 2 * kPrefetchedRows; ++i) {
    const size_t slot = i % kPrefetchedRows;
    if (i >= 2 * kPrefetchedRows) use(i - 2 * kPrefetchedRows, rows[slot]);
    if (i >= kPrefetchedRows && i - kPrefetchedRows < count) {
      rows[slot] = found(RowIndex::FindFrom(homes[slot], mixes[i - kPrefetchedRows]));
    }
    if (i < count) {
      homes[slot] = index_.Home(mixes[i]);
      __builtin_prefetch(homes[slot]);
    }
  }
}

bool RowTable::Contains(uint64_t mix) const noexcept {
  const uint64_t place = index_.Find(mix);
  return place != RowIndex::kNowhere && !(policy_.age_max > 0 && IsGone(pages_.NoteOf(place)));
}

// Reads the numbered rows of a batch from the disk, several at a time.
//   bytes  length to read from a record's beginning; 0: the whole record
//   use    called with a row's number, its place and its bytes
template <typename Use>
void RowTable::ReadFromDisk(std::span<const uint64_t> mixes, std::span<const uint32_t> numbers,
                            size_t bytes, Use use) const {
  if (numbers.empty()) return;
  WithMemory([&] {
    const DiskPages& disk = *pages_.disk();
    const auto bytes_of = [&](uint64_t place) { return bytes > 0 ? bytes : disk.StrideOf(place); };
    std::vector<double> scratch;
    for (size_t i = 0; i < numbers.size() + kReading; ++i) {
      if (i < numbers.size()) {
        const uint64_t place = index_.Find(mixes[numbers[i]]);
        disk.Prefetch(place, bytes_of(place));
      }
      if (i < kReading) continue;
      const uint32_t number = numbers[i - kReading];
      const uint64_t place = index_.Find(mixes[number]);
      scratch.resize(std::max(scratch.size(), bytes_of(place) / sizeof(double) + 1));
      use(number, place,
          disk.Read(place, bytes_of(place), reinterpret_cast<std::byte*>(scratch.data())));
    }
  });
}

// Calls `use` with the whole record of each row of the batch that the table has.
template <typename Use>
void RowTable::ReadRecords(std::span<const uint64_t> mixes, Use use) const {
  std::vector<uint32_t> elsewhere;
  Walk(
      mixes, [](uint64_t place) { return place; },
      [&](size_t i, uint64_t place) {
        if (place == RowIndex::kNowhere) return;
        if (DiskPages::Has(place)) {
          elsewhere.push_back(static_cast<uint32_t>(i));
        } else {
          use(i, place, pages_.At(place));
        }
      });
  ReadFromDisk(mixes, elsewhere, 0, use);
}

void RowTable::Read(std::span<const uint64_t> mixes, void* out) const {
  static constexpr std::byte kElsewhere{};  // stands for a record on the disk
  auto* const rows = static_cast<std::byte*>(out);
  const bool ages = policy_.age_max > 0;
  const auto found = [&](uint64_t place) -> const std::byte* {
    if (place == RowIndex::kNowhere || (ages && IsGone(pages_.NoteOf(place)))) return nullptr;
    if (DiskPages::Has(place)) return &kElsewhere;
    const std::byte* const record = pages_.At(place);
    PrefetchBytes(record, row_bytes());
    return record;
  };
  std::vector<uint32_t> elsewhere;
  Walk(mixes, found, [&](size_t i, const std::byte* record) {
    std::byte* const row = rows + i * row_bytes();
    if (record == nullptr) {
      initial_.Write(Unmix(mixes[i]), row);
    } else if (record == &kElsewhere) {
      elsewhere.push_back(static_cast<uint32_t>(i));
    } else {
      std::memcpy(row, record, row_bytes());
    }
  });
  ReadFromDisk(mixes, elsewhere, row_bytes(), [&](size_t i, uint64_t, const std::byte* record) {
    std::memcpy(rows + i * row_bytes(), record, row_bytes());
  });
}

std::vector<DiskPages::Where> RowTable::OnDisk(std::span<const uint64_t> mixes) const {
  std::vector<DiskPages::Where> all;
  if (pages_.disk_rows() == 0) return all;
  Walk(
      mixes, [](uint64_t place) { return place; },
      [&](size_t, uint64_t place) {
        if (place == RowIndex::kNowhere || !DiskPages::Has(place)) return;
        const DiskPages& disk = *pages_.disk();
        if (auto where = disk.WhereIs(place, disk.StrideOf(place))) all.push_back(*where);
      });
  return all;
}

// Gives places to missing rows.  If it throws, TakeBack removes the rows made so far.
void RowTable::Make(std::span<const uint64_t> mixes, bool is_push, ReservedRows* reserved) {
  const bool counts = is_push && policy_.admit_count > 1;
  for (size_t i = 0; i < mixes.size(); ++i) {
    uint64_t& place = reserved->places_[i];
    if (place != RowIndex::kNowhere) continue;
    if (counts && !LetsIn(mixes[i], static_cast<uint32_t>(i), reserved)) continue;
    const RowPages::Taken taken = pages_.TakePlace();
    try {
      place = index_.Insert(mixes[i], taken.place);
    } catch (...) {
      pages_.PutBack(taken);
      throw;
    }
    if (place == taken.place) {
      reserved->made_.push_back(static_cast<uint32_t>(i));
      if (taken.is_from_list) ++reserved->from_list_;
    } else {
      pages_.PutBack(taken);  // the batch has this id twice
    }
  }
}

void RowTable::TakeBack(std::span<const uint64_t> mixes, const ReservedRows& reserved) noexcept {
  for (size_t i = reserved.made_.size(); i-- > 0;) {
    const uint64_t mix = mixes[reserved.made_[i]];
    // Erase cannot throw: since the insertion the segment is not shared.  Freed places were taken
    // before those at the end.
    pages_.PutBack({index_.Erase(mix), i < reserved.from_list_});
  }
  for (const uint32_t i : reserved.new_candidates_) candidates_.Erase(mixes[i]);
}

void RowTable::Reserve(std::span<const uint64_t> mixes, ReservedRows* reserved) {
  ReserveSome(mixes, false, reserved);
}

void RowTable::Admit(std::span<const uint64_t> mixes, ReservedRows* reserved) {
  if (policy_.age_max > 0) DropGone(mixes);
  ReserveSome(mixes, true, reserved);
}

void RowTable::ReserveSome(std::span<const uint64_t> mixes, bool is_push, ReservedRows* reserved) {
  WithMemory([&] {
    reserved->made_.clear();
    reserved->from_list_ = 0;
    reserved->new_candidates_.clear();
    reserved->places_.resize(mixes.size());
    if (pages_.is_bounded()) CheckMemory();
    size_t missing = 0, on_disk = 0;
    bool has_others = false;  // some rows may be in pages that are shared or of an earlier rule
    pages_.StartBatch();
    Walk(
        mixes,
        [&](uint64_t place) {
          if (place == RowIndex::kNowhere) {
            ++missing;
          } else if (DiskPages::Has(place)) {
            ++on_disk;
          } else if (!pages_.IsWritable(place)) {
            has_others = true;
          }
          return place;
        },
        [&](size_t i, uint64_t place) { reserved->places_[i] = place; });
    if (missing > UINT32_MAX || mixes.size() > UINT32_MAX) throw std::bad_alloc();
    reserved->made_.reserve(missing);
    if (is_push && policy_.admit_count > 1) reserved->new_candidates_.reserve(missing);
    if (on_disk > 0) {
      dead_ += FromDisk(mixes, reserved);
      has_others = true;
    }
    try {
      if (missing > 0) Make(mixes, is_push, reserved);
      if (missing > 0 || has_others) {
        for (const uint64_t place : reserved->places_) {
          if (place != RowIndex::kNowhere) pages_.MakeWritable(place);
        }
      }
    } catch (...) {
      TakeBack(mixes, *reserved);
      throw;
    }
    for (const uint32_t i : reserved->made_) {
      std::byte* const record = pages_.At(reserved->places_[i]);
      initial_.Write(Unmix(mixes[i]), record);
      pages_.Start(record, record);
      if (policy_.has_notes) *pages_.NoteAt(reserved->places_[i]) = {now_, 0};
      if (pages_.is_bounded()) pages_.SetName(reserved->places_[i], mixes[i]);
    }
    if (!pages_.is_bounded()) return;
    for (const uint64_t place : reserved->places_) {
      if (place != RowIndex::kNowhere) pages_.Touch(place);
    }
  });
}

// Moves rows of the batch from the disk to memory.
//   returns  how many
size_t RowTable::FromDisk(std::span<const uint64_t> mixes, ReservedRows* reserved) {
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < mixes.size(); ++i) {
    const uint64_t place = reserved->places_[i];
    if (place == RowIndex::kNowhere || !DiskPages::Has(place)) continue;
    numbers.push_back(static_cast<uint32_t>(i));
  }
  size_t count = 0;
  const DiskPages& disk = *pages_.disk();
  for (size_t i = 0; i < numbers.size() + kReading; ++i) {
    if (i < numbers.size()) {
      const uint64_t place = index_.Find(mixes[numbers[i]]);
      if (DiskPages::Has(place)) disk.Prefetch(place, disk.StrideOf(place));
    }
    if (i < kReading) continue;
    const uint32_t number = numbers[i - kReading];
    uint64_t& place = reserved->places_[number];
    const uint64_t there = index_.Find(mixes[number]);
    if (!DiskPages::Has(there)) {  // the batch has this id twice
      place = there;
      continue;
    }
    const RowPages::Taken taken = pages_.TakePlace();
    try {
      pages_.MakeWritable(taken.place);
      pages_.CopyFromDisk(there, taken.place);
      index_.MakeWritable(mixes[number]);
    } catch (...) {
      pages_.PutBack(taken);
      throw;
    }
    pages_.SetName(taken.place, mixes[number]);
    index_.Set(mixes[number], taken.place);
    pages_.FreeOnDisk(there);
    place = taken.place;
    ++count;
  }
  return count;
}

// If the disk does not keep up, waits up to kDiskPatience, then throws: memory is limited, too.
void RowTable::CheckMemory() {
  const size_t bound = pages_.RowsInMemoryMax();
  const size_t slack = std::clamp<size_t>(kSlackBytes / (pages_.row_bytes() + 1), 1, kSlackMax);
  const auto rows = [&] { return size() - pages_.disk_rows(); };
  if (rows() <= 2 * bound + slack) return;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + kDiskPatience;
  int idle = 0;  // successive rounds in which no row moved to the disk
  for (;;) {
    const size_t before = rows();
    Settle();
    if (rows() <= 2 * bound + slack) return;
    idle = rows() < before ? 0 : idle + 1;
    const auto left = end - Clock::now();
    if (left <= left.zero() || idle > kIdleMax) break;
    pages_.disk()->disk()->Flush(left);
  }
  const std::string failure = pages_.disk()->disk()->failure();
  throw Fail(Code::kResourceExhausted, "{} rows are in memory, which is for {}: {}", rows(), bound,
             failure.empty() ? "the disk does not keep up" : failure.c_str());
}

void RowTable::Settle() noexcept {
  if (!pages_.is_bounded()) return;
  try {
    const auto set = [&](uint64_t mix, uint64_t place) {
      index_.MakeWritable(mix);
      index_.Set(mix, place);
    };
    try {
      pages_.Tidy(2 * std::exchange(dead_, 0), [&](uint64_t mix) { return index_.Find(mix); }, set);
    } catch (const Error& error) {
      static_cast<void>(error);  // a page cannot be read: its rows keep their places
    }
    const size_t most = pages_.RowsInMemoryMax(), rows = size() - pages_.disk_rows();
    if (rows <= most) return;
    size_t surplus = rows - most;
    pages_.ReserveFree(surplus);
    // Second-chance replacement: the first round spares rows that were written lately, and the
    // second finds none of them.
    while (surplus > 0) {
      const uint64_t place = pages_.NextPlace();
      const uint64_t mix = pages_.NameOf(place);
      if (index_.Find(mix) != place) continue;  // a free place
      if (pages_.WasTouched(place)) continue;
      index_.MakeWritable(mix);
      const auto there = pages_.CopyToDisk(place);
      if (!there) return;
      index_.Set(mix, *there);
      pages_.Free(place);
      --surplus;
    }
  } catch (const std::exception& error) {
    static_cast<void>(error);  // no memory or no disk: a later version tries again
  }
}

void RowTable::ReserveAll() {
  if (pages_.disk_rows() > 0) {
    throw Fail(Code::kFailedPrecondition,
               "{} rows are on a disk: an update of all rows is for tables in memory",
               pages_.disk_rows());
  }
  WithMemory([&] { pages_.MakeAllWritable(); });
}

template <typename F>
void RowTable::ForEach(const ReservedRows& reserved, F f) noexcept {
  const auto& all = reserved.places_;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i + kPrefetchedRows < all.size() && all[i + kPrefetchedRows] != RowIndex::kNowhere) {
      pages_.Prefetch(all[i + kPrefetchedRows]);
    }
    if (all[i] != RowIndex::kNowhere) f(i, pages_.At(all[i]));
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
      kernels::Convert(dtype(), record, compute(), pages_.PartsOf(record).master, row_elements());
    }
  });
}

void RowTable::AssignMaster(const ReservedRows& reserved, const RowSource& values) noexcept {
  if (!has_master()) return;
  ForEach(reserved, [&](size_t i, std::byte* record) {
    std::memcpy(pages_.PartsOf(record).master, values.at(i), wide_bytes());
  });
}

void RowTable::AssignState(size_t number, const ReservedRows& reserved,
                           const RowSource& values) noexcept {
  if (number >= state_count()) return;
  ForEach(reserved, [&](size_t i, std::byte* record) {
    const RowParts parts = pages_.PartsOf(record);
    std::memcpy(parts.states + number * parts.state_bytes, values.at(i), wide_bytes());
  });
}

void RowTable::Update(RowUpdate* update, std::span<const uint64_t> mixes,
                      const ReservedRows& reserved, const RowSource& sums) noexcept {
  UpdateQueue queue(pages_, update);
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
  UpdateQueue queue(pages_, update);
  size_t next = 0;
  index_.ForEach(0, [&](uint64_t mix, uint64_t place) {
    while (next < mixes.size() && mixes[next] < mix) ++next;  // ids that the policy did not admit
    const bool is_summed = next < mixes.size() && mixes[next] == mix;
    queue.Add(place, mix, is_summed ? sums.at(next++) : update->zeros());
    return true;
  });
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
      __builtin_prefetch(pages_.NoteAt(all[i + kPrefetchedRows]));
    }
    if (all[i] == RowIndex::kNowhere) {
      candidates_.Set(mixes[i], {now_ + 1, CandidateOf(mixes[i]).count + 1});
    } else if (policy_.has_notes) {
      RowNote& note = *pages_.NoteAt(all[i]);
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
  WithMemory([&] {
    std::vector<uint64_t> gone;
    Walk(
        mixes,
        [&](uint64_t place) {
          if (place != RowIndex::kNowhere && !DiskPages::Has(place)) {
            __builtin_prefetch(pages_.NoteAt(place));
          }
          return place;
        },
        [&](size_t i, uint64_t place) {
          if (place != RowIndex::kNowhere && IsGone(pages_.NoteOf(place))) gone.push_back(mixes[i]);
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
  look(index_, &next_row_, [&](uint64_t place) { return pages_.NoteOf(place); });
  Erase(gone);
  evicted_ += gone.size();
  look(candidates_, &next_candidate_, [](const RowNote& note) { return note; });
  for (const uint64_t mix : gone) candidates_.Erase(mix);
}

double RowTable::ScoreOf(uint64_t place, std::byte* wide) const noexcept {
  switch (policy_.score) {
    case RowPolicy::Score::kAge:
      return static_cast<double>(pages_.NoteOf(place).version);
    case RowPolicy::Score::kCount:
      return static_cast<double>(pages_.NoteOf(place).count);
    case RowPolicy::Score::kNorm:
      break;
  }
  kernels::Convert(dtype(), pages_.At(place), compute(), wide, row_elements());
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
  const uint64_t most = (policy_.rows_max + index_.buckets() - 1) / index_.buckets();
  if (size() <= most) return;
  std::vector<std::pair<double, uint64_t>> scores;
  scores.reserve(size());
  std::vector<uint64_t> lost;
  std::vector<std::byte> wide(wide_bytes());
  index_.ForEach(0, [&](uint64_t mix, uint64_t place) {
    if (policy_.age_max > 0 && IsGone(pages_.NoteOf(place))) {
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

// -----------------------------------------------------------------------------------------------------------------
// rows that go, and snapshots

void RowTable::Erase(std::span<const uint64_t> mixes) {
  WithMemory([&] {
    pages_.ReserveFree(mixes.size());
    for (const uint64_t mix : mixes) {
      const uint64_t place = index_.Erase(mix);
      if (place != RowIndex::kNowhere) {
        if (DiskPages::Has(place)) {
          pages_.FreeOnDisk(place);
          ++dead_;
        } else {
          pages_.Free(place);
        }
      }
      if (candidates_.size() > 0) candidates_.Erase(mix);
    }
  });
}

std::vector<uint64_t> RowTable::Mixes(uint64_t first, size_t count_max) const {
  std::vector<uint64_t> mixes;
  mixes.reserve(std::min(count_max, size()));
  if (count_max == 0) return mixes;
  index_.ForEach(first, [&](uint64_t mix, uint64_t) {
    mixes.push_back(mix);
    return mixes.size() < count_max;
  });
  return mixes;
}

std::vector<uint64_t> RowTable::MixesFrom(uint64_t number, size_t count_max) const {
  if (number >= size()) return {};
  return Mixes(index_.MixAt(number), count_max);
}

void RowTable::ReadMaster(std::span<const uint64_t> mixes, void* out) const {
  auto* const rows = static_cast<std::byte*>(out);
  ReadRecords(mixes, [&](size_t i, uint64_t place, const std::byte* record) {
    std::byte* const row = rows + i * wide_bytes();
    if (has_master() && pages_.IsOfNow(place)) {
      std::memcpy(row, pages_.MasterOf(record), wide_bytes());
    } else {
      kernels::Convert(dtype(), record, compute(), row, row_elements());
    }
  });
}

void RowTable::ReadState(size_t number, std::span<const uint64_t> mixes, void* out) const {
  auto* const rows = static_cast<std::byte*>(out);
  ReadRecords(mixes, [&](size_t i, uint64_t place, const std::byte* record) {
    std::byte* const row = rows + i * wide_bytes();
    if (number < state_count() && pages_.IsOfNow(place)) {
      std::memcpy(row, pages_.StateOf(record, number), wide_bytes());
    } else {
      std::memset(row, 0, wide_bytes());
    }
  });
}

void RowTable::ReadNotes(std::span<const uint64_t> mixes, RowNote* out) const noexcept {
  Walk(
      mixes, [](uint64_t place) { return place; },
      [&](size_t i, uint64_t place) {
        if (place != RowIndex::kNowhere) out[i] = pages_.NoteOf(place);
      });
}

void RowTable::AssignNotes(const ReservedRows& reserved, const RowNote* notes) noexcept {
  ForEach(reserved, [&](size_t i, std::byte*) { *pages_.NoteAt(reserved.places_[i]) = notes[i]; });
}

void RowTable::NoteImport(const ReservedRows& reserved) noexcept {
  if (!policy_.has_notes) return;
  ForEach(reserved,
          [&](size_t i, std::byte*) { *pages_.NoteAt(reserved.places_[i]) = {now_ + 1, 0}; });
}

void RowTable::PutCandidate(const Candidate& candidate) {
  WithMemory([&] { candidates_.Put(candidate); });
}

}  // namespace tkv
