#include "rows/row_spill.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "base/format.h"

namespace tkv {
namespace {

// Limits of the rows that may be in memory beyond twice the bound.
constexpr size_t kSlackMax = 4096;
constexpr size_t kSlackBytes = size_t{1} << 20;
constexpr std::chrono::seconds kDiskPatience{1};
constexpr int kIdleMax = 3;

}  // namespace

RowSpill::RowSpill(uint64_t memory_max, std::shared_ptr<RowDisk> disk, bool has_notes)
    : memory_max_(memory_max) {
  if (memory_max == 0) return;
  if (disk == nullptr) {
    throw Fail(
        Code::kFailedPrecondition,
        "memory for rows is bounded, and there is no folder for the others: rows_dir is not set");
  }
  // A disk page that is being filled is in memory, too.
  pages_.emplace(std::move(disk), has_notes, static_cast<size_t>(memory_max / 4));
}

size_t RowSpill::RowsInMemoryMax(const RowPages& pages) const {
  return std::max<size_t>(1, static_cast<size_t>(memory_max_ / pages.BytesPerRow()));
}

// If the disk does not keep up, waits up to kDiskPatience.  Then it throws, because more rows in
// memory would exceed the bound.
void RowSpill::MakeRoom(RowIndex* index, RowPages* pages) {
  if (!is_bounded()) return;
  const size_t bound = RowsInMemoryMax(*pages);
  const size_t slack = std::clamp<size_t>(kSlackBytes / (pages->row_bytes() + 1), 1, kSlackMax);
  const auto rows = [&] { return index->size() - size(); };
  if (rows() <= 2 * bound + slack) return;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + kDiskPatience;
  int idle = 0;  // successive rounds in which no row moved to the disk
  for (;;) {
    const size_t before = rows();
    Settle(index, pages);
    if (rows() <= 2 * bound + slack) return;
    idle = rows() < before ? 0 : idle + 1;
    const auto left = end - Clock::now();
    if (left <= left.zero() || idle > kIdleMax) break;
    pages_->disk()->Flush(left);
  }
  const std::string failure = pages_->disk()->failure();
  throw Fail(Code::kResourceExhausted, "{} rows are in memory, which is for {}: {}", rows(), bound,
             failure.empty() ? "the disk does not keep up" : failure.c_str());
}

void RowSpill::Load(std::span<const uint64_t> mixes, std::span<uint64_t> places, RowIndex* index,
                    RowPages* pages) {
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < mixes.size(); ++i) {
    if (places[i] == RowIndex::kNowhere || !IsOnDisk(places[i])) continue;
    numbers.push_back(static_cast<uint32_t>(i));
  }
  size_t count = 0;
  for (size_t i = 0; i < numbers.size() + kReading; ++i) {
    if (i < numbers.size()) {
      const uint64_t place = index->Find(mixes[numbers[i]]);
      if (IsOnDisk(place)) pages_->Prefetch(place, pages_->StrideOf(place));
    }
    if (i < kReading) continue;
    const uint32_t number = numbers[i - kReading];
    uint64_t& place = places[number];
    place = index->Find(mixes[number]);
    if (!IsOnDisk(place)) continue;  // the batch has this id twice
    place = LoadRow(mixes[number], place, index, pages);
    ++count;
  }
  dead_ += count;
}

// Moves a row from the disk to memory.
//   returns  its place there
uint64_t RowSpill::LoadRow(uint64_t mix, uint64_t place, RowIndex* index, RowPages* pages) {
  const RowPages::Taken taken = pages->TakePlace();
  try {
    pages->MakeWritable(taken.place);
    CopyToMemory(place, taken.place, *pages);
    index->MakeWritable(mix);
  } catch (...) {
    pages->PutBack(taken);
    throw;
  }
  pages->SetName(taken.place, mix);
  index->Set(mix, taken.place);
  pages_->Free(place);
  return taken.place;
}

// Copies a record from the disk to a place in a writable page.
//   blocks   while the disk reads
//   throws   kUnavailable; the record at `to` is then undefined
void RowSpill::CopyToMemory(uint64_t place, uint64_t to, const RowPages& pages) const {
  std::byte* const record = pages.At(to);
  if (RuleOf(place) == pages.rule()) {
    const size_t stride = pages.StrideAt(to);
    const std::byte* const found = pages_->Read(place, stride, record);
    if (found != record) std::memcpy(record, found, stride);
  } else {
    pages.Start(record, pages_->Read(place, pages.row_bytes(), record));
  }
  if (pages.has_notes()) *pages.NoteAt(to) = NoteAt(place);
}

// Copies a record to the disk, with the states of the current update rule.
//   returns  its place there, or nothing if the disk does not keep up
//   throws   std::bad_alloc
std::optional<uint64_t> RowSpill::CopyToDisk(uint64_t place, const RowPages& pages) {
  const size_t stride = pages.Stride();
  const RowNote note = pages.has_notes() ? *pages.NoteAt(place) : RowNote();
  const auto room = pages_->Put(pages.NameOf(place), stride, pages.rule(), &note);
  if (!room) return std::nullopt;
  if (pages.HasStates(place)) {
    std::memcpy(room->record, pages.At(place), stride);
  } else {
    pages.Start(room->record, pages.At(place));
  }
  return room->place;
}

void RowSpill::Settle(RowIndex* index, RowPages* pages) noexcept {
  if (!is_bounded()) return;
  try {
    try {
      Compact(2 * std::exchange(dead_, 0), index);
    } catch (const Error& error) {
      static_cast<void>(error);  // a page cannot be read: its rows keep their places
    }
    const size_t most = RowsInMemoryMax(*pages), rows = index->size() - size();
    if (rows > most) MoveToDisk(rows - most, index, pages);
  } catch (const std::exception& error) {
    static_cast<void>(error);  // no memory or no disk: a later version tries again
  }
}

// Moves rows to the disk by second-chance replacement: the first round spares rows that were
// written lately, and the second finds none of them.
void RowSpill::MoveToDisk(size_t count, RowIndex* index, RowPages* pages) {
  pages->ReserveFree(count);
  while (count > 0) {
    const uint64_t place = pages->NextPlace();
    const uint64_t mix = pages->NameOf(place);
    if (index->Find(mix) != place) continue;  // a free place
    if (pages->WasTouched(place)) continue;
    index->MakeWritable(mix);
    const auto there = CopyToDisk(place, *pages);
    if (!there) return;
    index->Set(mix, *there);
    pages->Free(place);
    --count;
  }
}

// Frees the memory of pages that are on the disk, and compacts pages with dead rows until about
// `count` rows have been examined.
void RowSpill::Compact(size_t count, RowIndex* index) {
  pages_->FreeWritten();
  while (count > 0) {
    const auto whole = pages_->TakeWorst();
    if (!whole) return;
    for (size_t row = 0; row < whole->mixes.size(); ++row) {
      const uint64_t mix = whole->mixes[row], place = whole->first + row;
      if (index->Find(mix) != place) continue;
      const RowNote note = pages_->has_notes() ? NoteAt(place) : RowNote();
      const auto room = pages_->Put(mix, whole->stride, whole->rule, &note);
      if (!room) return;
      std::memcpy(room->record, whole->memory.data + row * whole->stride, whole->stride);
      try {
        index->MakeWritable(mix);
      } catch (...) {
        pages_->Free(room->place);
        throw;
      }
      index->Set(mix, room->place);
      pages_->Free(place);
    }
    count -= std::min(count, whole->mixes.size());
  }
}

}  // namespace tkv
