// Bounds the memory of a table: moves rows that were not written lately to a disk.
//
// A row that is written again returns to memory first.  A row that is only read stays on the disk.
// The place of a row in the index says where the row is.
//
// A value type: copies share the pages on the disk.  Several threads may read rows at once.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rows/disk_pages.h"
#include "rows/row_disk.h"
#include "rows/row_index.h"
#include "rows/row_memory.h"
#include "rows/row_note.h"
#include "rows/row_pages.h"

namespace tkv {

class RowSpill {
 public:
  // A row of a batch that is on the disk.
  struct Row {
    size_t number;  // in the batch
    uint64_t place;
  };

  //   memory_max  about the bytes of records that stay in memory; 0: all records stay in memory
  //   disk        for the other records
  //   throws      kFailedPrecondition (memory is bounded and there is no disk)
  RowSpill(uint64_t memory_max, std::shared_ptr<RowDisk> disk, bool has_notes);

  bool is_bounded() const noexcept { return memory_max_ > 0; }
  size_t size() const noexcept { return pages_ ? pages_->size() : 0; }  // rows on the disk
  size_t memory_bytes() const noexcept { return pages_ ? pages_->memory_bytes() : 0; }
  size_t disk_bytes() const noexcept { return pages_ ? pages_->disk_bytes() : 0; }
  // Returns the disk, or null if memory is not bounded.
  std::shared_ptr<RowDisk> disk() const noexcept { return pages_ ? pages_->disk() : nullptr; }

  // ---- rows on the disk
  // Returns true if the place of a row is on the disk.
  static bool IsOnDisk(uint64_t place) noexcept { return DiskPages::Has(place); }
  const RowNote& NoteAt(uint64_t place) const noexcept { return pages_->NoteAt(place); }
  // Returns the number of the update rule whose states a record has.
  uint64_t RuleOf(uint64_t place) const noexcept { return pages_->RuleOf(place); }
  // Reads rows, several at a time.
  //   bytes   length to read from a record's beginning; 0: the whole record
  //   use     called with a row's number, its place and its bytes
  //   blocks  while the disk reads
  //   throws  kUnavailable, kResourceExhausted
  template <typename Use>
  void Read(std::span<const Row> rows, size_t bytes, Use use) const;
  // Returns the range of a record on the disk, or nothing if its page is still in memory.
  std::optional<DiskRange> RangeOf(uint64_t place) const {
    return pages_->RangeOf(place, pages_->StrideOf(place));
  }
  // Marks a record as dead, since its row was removed.
  void Free(uint64_t place) noexcept {
    pages_->Free(place);
    ++dead_;
  }

  // ---- moves of rows; `index` and `pages` are those of the table
  // Moves rows to the disk if far too many are in memory.
  //   blocks  up to a second, until the disk has written some
  //   throws  kResourceExhausted (the disk does not keep up or fails)
  void MakeRoom(RowIndex* index, RowPages* pages);
  // Moves rows of a batch from the disk to memory, before they are written.
  //   places  of the rows, kNowhere if there is none; set to those in memory
  //   blocks  while the disk reads
  //   throws  kUnavailable, kResourceExhausted, std::bad_alloc; the table has the same rows
  void Load(std::span<const uint64_t> mixes, std::span<uint64_t> places, RowIndex* index,
            RowPages* pages);
  // Moves the surplus of rows to the disk, and compacts pages on the disk.  If the disk does not
  // keep up, a later call moves them.
  void Settle(RowIndex* index, RowPages* pages) noexcept;

 private:
  static constexpr size_t kReading = 64;  // rows that are prefetched from the disk at a time

  size_t RowsInMemoryMax(const RowPages& pages) const;
  uint64_t LoadRow(uint64_t mix, uint64_t place, RowIndex* index, RowPages* pages);
  void CopyToMemory(uint64_t place, uint64_t to, const RowPages& pages) const;
  std::optional<uint64_t> CopyToDisk(uint64_t place, const RowPages& pages);
  void MoveToDisk(size_t count, RowIndex* index, RowPages* pages);
  void Compact(size_t count, RowIndex* index);

  uint64_t memory_max_;
  std::optional<DiskPages> pages_;  // on the disk; none if memory is not bounded
  size_t dead_ = 0;                 // records on the disk that have become dead since Settle
};

template <typename Use>
void RowSpill::Read(std::span<const Row> rows, size_t bytes, Use use) const {
  if (rows.empty()) return;
  WithRowMemory([&] {
    const auto bytes_of = [&](uint64_t place) {
      return bytes > 0 ? bytes : pages_->StrideOf(place);
    };
    std::vector<double> scratch;
    for (size_t i = 0; i < rows.size() + kReading; ++i) {
      if (i < rows.size()) pages_->Prefetch(rows[i].place, bytes_of(rows[i].place));
      if (i < kReading) continue;
      const auto [number, place] = rows[i - kReading];
      const size_t length = bytes_of(place);
      scratch.resize(std::max(scratch.size(), length / sizeof(double) + 1));
      use(number, place, pages_->Read(place, length, reinterpret_cast<std::byte*>(scratch.data())));
    }
  });
}

}  // namespace tkv
