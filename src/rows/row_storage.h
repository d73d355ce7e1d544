// Stores a record for each row of a table, found by the mix of the row's id.
//
// The index has the place of each row: in the pages in memory or, if memory is bounded, on a disk.
//
// A value type: copies share records and index, and a writer copies a shared part first.  Several
// threads may read at once.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rows/reserved_rows.h"
#include "rows/row_disk.h"
#include "rows/row_index.h"
#include "rows/row_note.h"
#include "rows/row_pages.h"
#include "rows/row_spill.h"

namespace tkv {

class RowStorage {
 public:
  //   buckets     the ids of a key are divided into so many; all mixes here are of one
  //   memory_max  about the bytes of records that stay in memory; 0: all records stay in memory
  //   disk        for the other records
  //   throws      kFailedPrecondition (memory is bounded and there is no disk)
  RowStorage(DType dtype, size_t elements, bool has_notes, uint32_t buckets, uint64_t memory_max,
             std::shared_ptr<RowDisk> disk);

  size_t size() const noexcept { return index_.size(); }
  size_t memory_bytes() const noexcept;
  const RowIndex& index() const noexcept { return index_; }
  const RowPages& pages() const noexcept { return pages_; }  // records in memory
  const RowSpill& spill() const noexcept { return spill_; }  // records on the disk

  // ---- rows in memory or on the disk
  // Returns the note of a row.  The rows have notes.
  RowNote NoteOf(uint64_t place) const noexcept {
    return RowSpill::IsOnDisk(place) ? spill_.NoteAt(place) : *pages_.NoteAt(place);
  }
  // Returns true if a record has the states of the current update rule.  Otherwise it has no
  // states.
  bool HasStates(uint64_t place) const noexcept {
    return RowSpill::IsOnDisk(place) ? spill_.RuleOf(place) == pages_.rule()
                                     : pages_.HasStates(place);
  }
  // Does as RowPages::StartStates.
  void StartStates(size_t state_count, bool has_master) noexcept {
    pages_.StartStates(state_count, has_master);
  }
  // Calls `use` with the number, the place and the record of each row of the batch that is stored.
  //   blocks, throws  as RowSpill::Read
  template <typename Use>
  void Read(std::span<const uint64_t> mixes, Use use) const;
  // Returns the ranges on the disk of the batch's rows that are not in memory.
  std::vector<DiskRange> RangesOnDisk(std::span<const uint64_t> mixes) const;

  // ---- a batch that is written: Locate, then Make for the rows to be made, then MakeWritable
  // Finds the rows of a batch, and moves those on the disk to memory.
  //   returns  the number of rows that are missing
  //   blocks   while the disk reads, and up to a second until it has written rows that are to leave
  //            the memory
  //   throws   kResourceExhausted, kUnavailable (the disk), std::bad_alloc; the same rows are
  //            stored
  size_t Locate(std::span<const uint64_t> mixes, ReservedRows* rows);
  // Makes a missing row.  The record is undefined until it is written.
  //   number  of the mix in the batch
  //   throws  std::bad_alloc, kResourceExhausted; nothing changed
  void Make(std::span<const uint64_t> mixes, size_t number, ReservedRows* rows);
  // Copies whatever the rows share with copies, so that writing them cannot fail.
  //   throws  std::bad_alloc, kResourceExhausted
  void MakeWritable(std::span<const uint64_t> mixes, const ReservedRows& rows);
  // Removes the rows that Make has made.  Call it before any other change.
  void TakeBack(std::span<const uint64_t> mixes, const ReservedRows& rows) noexcept;
  // Makes all rows writable.
  //   throws  std::bad_alloc, kResourceExhausted, kFailedPrecondition (some rows are on a disk)
  void MakeAllWritable();

  // ---- removal
  // Reserves the capacity that as many calls of Erase need.
  //   throws  std::bad_alloc
  void ReserveErase(size_t count) { pages_.ReserveFree(count); }
  // Removes a row, which may be missing.  Later rows reuse its place.
  //   throws  std::bad_alloc; nothing changed
  void Erase(uint64_t mix);
  // Does as RowSpill::Settle.
  void Settle() noexcept { spill_.Settle(&index_, &pages_); }

 private:
  RowIndex index_;
  RowPages pages_;
  RowSpill spill_;
};

template <typename Use>
void RowStorage::Read(std::span<const uint64_t> mixes, Use use) const {
  std::vector<RowSpill::Row> on_disk;
  index_.FindAll(mixes, [&](size_t i, uint64_t place) {
    if (place == RowIndex::kNowhere) return;
    if (RowSpill::IsOnDisk(place)) {
      on_disk.push_back({i, place});
    } else {
      use(i, place, pages_.At(place));
    }
  });
  spill_.Read(on_disk, 0, use);
}

}  // namespace tkv
