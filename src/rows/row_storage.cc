#include "rows/row_storage.h"

#include <new>
#include <utility>

#include "base/format.h"

namespace tkv {

RowStorage::RowStorage(DType dtype, size_t elements, bool has_notes, uint32_t buckets,
                       uint64_t memory_max, std::shared_ptr<RowDisk> disk)
    : index_(buckets),
      pages_(dtype, elements, has_notes, memory_max > 0),
      spill_(memory_max, std::move(disk), has_notes) {}

size_t RowStorage::memory_bytes() const noexcept {
  return index_.memory_bytes() + pages_.memory_bytes() + spill_.memory_bytes();
}

std::vector<DiskRange> RowStorage::RangesOnDisk(std::span<const uint64_t> mixes) const {
  std::vector<DiskRange> all;
  if (spill_.size() == 0) return all;
  index_.FindAll(mixes, [&](size_t, uint64_t place) {
    if (place == RowIndex::kNowhere || !RowSpill::IsOnDisk(place)) return;
    if (auto range = spill_.RangeOf(place)) all.push_back(*range);
  });
  return all;
}

size_t RowStorage::Locate(std::span<const uint64_t> mixes, ReservedRows* rows) {
  rows->made_.clear();
  rows->from_list_ = 0;
  rows->places_.resize(mixes.size());
  spill_.MakeRoom(&index_, &pages_);
  size_t missing = 0, on_disk = 0;
  bool has_others = false;  // some rows are in pages that are shared or of an earlier rule
  pages_.StartBatch();
  index_.FindAll(
      mixes,
      [&](uint64_t place) {
        if (place == RowIndex::kNowhere) {
          ++missing;
        } else if (RowSpill::IsOnDisk(place)) {
          ++on_disk;
        } else if (!pages_.IsWritable(place)) {
          has_others = true;
        }
        return place;
      },
      [&](size_t i, uint64_t place) { rows->places_[i] = place; });
  if (mixes.size() > UINT32_MAX) throw std::bad_alloc();
  rows->made_.reserve(missing);
  if (on_disk > 0) spill_.Load(mixes, rows->places_, &index_, &pages_);
  rows->is_writable_ = missing == 0 && on_disk == 0 && !has_others;
  return missing;
}

void RowStorage::Make(std::span<const uint64_t> mixes, size_t number, ReservedRows* rows) {
  const RowPages::Taken taken = pages_.TakePlace();
  uint64_t& place = rows->places_[number];
  try {
    place = index_.Insert(mixes[number], taken.place);
  } catch (...) {
    pages_.PutBack(taken);
    throw;
  }
  if (place == taken.place) {
    rows->made_.push_back(static_cast<uint32_t>(number));
    if (taken.is_from_list) ++rows->from_list_;
  } else {
    pages_.PutBack(taken);  // the batch has this id twice
  }
}

void RowStorage::MakeWritable(std::span<const uint64_t> mixes, const ReservedRows& rows) {
  if (!rows.is_writable_) {
    for (const uint64_t place : rows.places_) {
      if (place != RowIndex::kNowhere) pages_.MakeWritable(place);
    }
  }
  if (!spill_.is_bounded()) return;
  for (const uint32_t i : rows.made_) pages_.SetName(rows.places_[i], mixes[i]);
  for (const uint64_t place : rows.places_) {
    if (place != RowIndex::kNowhere) pages_.Touch(place);
  }
}

void RowStorage::TakeBack(std::span<const uint64_t> mixes, const ReservedRows& rows) noexcept {
  for (size_t i = rows.made_.size(); i-- > 0;) {
    const uint64_t mix = mixes[rows.made_[i]];
    // Erase cannot throw: since the insertion the segment is not shared.  Freed places were taken
    // before those at the end.
    pages_.PutBack({index_.Erase(mix), i < rows.from_list_});
  }
}

void RowStorage::MakeAllWritable() {
  if (spill_.size() > 0) {
    throw Fail(Code::kFailedPrecondition,
               "{} rows are on a disk: an update of all rows is for tables in memory",
               spill_.size());
  }
  pages_.MakeAllWritable();
}

void RowStorage::Erase(uint64_t mix) {
  const uint64_t place = index_.Erase(mix);
  if (place == RowIndex::kNowhere) return;
  if (RowSpill::IsOnDisk(place)) {
    spill_.Free(place);
  } else {
    pages_.Free(place);
  }
}

}  // namespace tkv
