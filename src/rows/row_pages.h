// Keeps records of rows, in pages.
//
// A record is a row's value, its float32 master if it has one, and its optimizer states.  The notes
// of a page's rows follow its records.  A page whose states belong to an earlier update rule is
// converted when it is next written.  If memory is bounded, records that have not been written for
// a while are on a disk.
//
// A value type: copies share pages, and a writer copies a shared page first.  Several threads may
// read the records at once.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/round_up.h"
#include "rows/disk_pages.h"
#include "rows/row_note.h"
#include "rows/row_update.h"

namespace tkv {

// Prefetches bytes that are read soon.  A long record is prefetched only at its beginning; the
// hardware prefetches the rest.
inline void PrefetchBytes(const void* at, size_t bytes) noexcept {
  constexpr size_t kLine = 64, kLinesMax = 16;
  const auto* const first = static_cast<const char*>(at);
  for (size_t i = 0; i < std::min(bytes, kLinesMax * kLine); i += kLine) {
    __builtin_prefetch(first + i);
  }
}

class RowPages {
 public:
  //   memory_max  about the bytes of records that stay in memory; 0: all records stay in memory
  //   disk        for the other records
  RowPages(DType dtype, size_t elements, bool has_notes, uint64_t memory_max = 0,
           std::shared_ptr<RowDisk> disk = nullptr);

  DType dtype() const noexcept { return dtype_; }
  DType compute() const noexcept { return compute_; }
  size_t elements() const noexcept { return elements_; }
  size_t row_bytes() const noexcept { return row_bytes_; }
  size_t wide_bytes() const noexcept { return wide_bytes_; }  // bytes of a row in the compute type
  size_t state_count() const noexcept { return state_count_; }
  bool has_master() const noexcept { return has_master_; }
  bool has_notes() const noexcept { return has_notes_; }
  size_t memory_bytes() const noexcept;

  // Sets the states and the master that each record has from now on, because a new update rule
  // begins.  Earlier states are dropped.
  void StartStates(size_t state_count, bool has_master) noexcept;

  // ---- places
  struct Taken {
    uint64_t place;
    bool is_from_list;  // from the list of freed places
  };
  // Returns a place for a record, whose contents are undefined.
  //   throws  std::bad_alloc, kResourceExhausted
  Taken TakePlace();
  // Returns places in the reverse order of their taking: to the end of the pages, or to the list of
  // freed places.  The list still has the capacity.
  void PutBack(const Taken& taken) noexcept;
  // Reserves capacity in the list of freed places, so that as many calls of Free cannot fail.
  //   throws  std::bad_alloc
  void ReserveFree(size_t count);
  void Free(uint64_t place) noexcept { free_.push_back(place); }

  // ---- records that are written
  // Begins a batch of writes: a page found writable stays writable until the next batch.
  void StartBatch() noexcept { ++batch_; }
  // Returns true if the page of a place can be written as it is.  Otherwise MakeWritable copies it.
  bool IsWritable(uint64_t place) noexcept;
  //   throws  std::bad_alloc, kResourceExhausted
  void MakeWritable(uint64_t place) { MakePageWritable(PageOf(place)); }
  void MakeAllWritable();
  // Makes a record of a row that has had no update: its value, the master made from it, and states
  // of zero.
  //   value  may be the record itself
  void Start(std::byte* record, const std::byte* value) const noexcept;
  // Returns the parts of a record that has the states of the current update rule.
  RowParts PartsOf(std::byte* record) const noexcept {
    RowParts parts;
    parts.value = record;
    parts.state_bytes = state_bytes();
    parts.states = record + MasterAt(row_bytes_);
    if (has_master_) {
      parts.master = reinterpret_cast<float*>(parts.states);
      parts.states += parts.state_bytes;
    }
    return parts;
  }
  const std::byte* MasterOf(const std::byte* record) const noexcept {
    return record + MasterAt(row_bytes_);
  }
  const std::byte* StateOf(const std::byte* record, size_t number) const noexcept {
    return MasterOf(record) + ((has_master_ ? 1 : 0) + number) * state_bytes();
  }

  // ---- records that are read
  std::byte* At(uint64_t place) const noexcept {
    const Page& page = pages_[PageOf(place)];
    return page.memory.data + uint64_t{RowOf(place)} * page.stride;
  }
  RowNote NoteOf(uint64_t place) const noexcept {
    return DiskPages::Has(place) ? disk_->NoteAt(place) : *NoteAt(place);
  }
  RowNote* NoteAt(uint64_t place) const noexcept {
    const Page& page = pages_[PageOf(place)];
    return reinterpret_cast<RowNote*>(page.memory.data + uint64_t{page.rows} * page.stride) +
           RowOf(place);
  }
  // Returns true if a record has the states of the current update rule.  Otherwise it has no
  // states.
  bool IsOfNow(uint64_t place) const noexcept {
    return (DiskPages::Has(place) ? disk_->RuleOf(place) : pages_[PageOf(place)].rule) == rule_;
  }
  void Prefetch(uint64_t place) const noexcept { PrefetchBytes(At(place), StrideAt(place)); }
  size_t StrideAt(uint64_t place) const noexcept { return pages_[PageOf(place)].stride; }

  // ---- where memory is bounded
  bool is_bounded() const noexcept { return memory_max_ > 0; }
  const DiskPages* disk() const noexcept { return disk_ ? &*disk_ : nullptr; }
  size_t disk_rows() const noexcept { return disk_ ? disk_->size() : 0; }
  // Returns how many records may stay in memory.
  size_t RowsInMemoryMax() const;
  // Stores the mix of the row that has this record.  NameOf returns it, for places that were named.
  void SetName(uint64_t place, uint64_t mix) noexcept { *NameAt(place) = mix; }
  uint64_t NameOf(uint64_t place) const noexcept { return *NameAt(place); }
  // Notes that the record has just been written.
  void Touch(uint64_t place) noexcept { *TouchAt(place) = 1; }
  // Returns true if the record was written since the last call for it.
  bool WasTouched(uint64_t place) noexcept { return std::exchange(*TouchAt(place), 0) != 0; }
  // Returns the next place of a record, round and round, for the clock algorithm.  There is at
  // least one record.
  uint64_t NextPlace() noexcept;
  // Copies a record to the disk, with the states of the current update rule.
  //   returns  its place there, or nothing if the disk does not keep up
  //   throws   std::bad_alloc
  std::optional<uint64_t> CopyToDisk(uint64_t place);
  // Copies a record from the disk to a place in a writable page.
  //   blocks   while the disk reads
  //   throws   kUnavailable; the record at `to` is then undefined
  void CopyFromDisk(uint64_t place, uint64_t to);
  void FreeOnDisk(uint64_t place) noexcept { disk_->Free(place); }
  // Frees the memory of pages that are on the disk, and compacts pages with dead rows until about
  // `count` rows have been examined.
  //   find     returns the place of a mix
  //   set      changes the place of a mix; may throw
  template <typename Find, typename Set>
  void Tidy(size_t count, Find find, Set set) {
    disk_->FreeWritten();
    while (count > 0) {
      const auto whole = disk_->TakeWorst();
      if (!whole) return;
      for (size_t row = 0; row < whole->mixes.size(); ++row) {
        const uint64_t mix = whole->mixes[row], place = whole->first + row;
        if (find(mix) != place) continue;
        const RowNote note = has_notes_ ? disk_->NoteAt(place) : RowNote();
        const auto room = disk_->Put(mix, whole->stride, whole->rule, &note);
        if (!room) return;
        std::memcpy(room->record, whole->memory.data + row * whole->stride, whole->stride);
        try {
          set(mix, room->place);
        } catch (...) {
          disk_->Free(room->place);
          throw;
        }
        disk_->Free(place);
      }
      count -= std::min(count, whole->mixes.size());
    }
  }

 private:
  struct Page {
    Block memory;
    uint64_t rule = 0;     // number of the update rule whose states it has
    uint64_t checked = 0;  // number of the last batch that found it writable
    uint32_t stride = 0;   // bytes from record to record
    uint32_t rows = 0;
  };
  struct Tail {  // place of the next row
    size_t page = 0;
    uint32_t row = 0;
  };

  // Returns the offset of the master, and so of the states: each part of a record is aligned for a
  // double.
  static size_t MasterAt(size_t row_bytes) { return RoundUp(row_bytes, sizeof(double)); }
  size_t state_bytes() const { return RoundUp(wide_bytes_, sizeof(double)); }
  static size_t PageOf(uint64_t place) { return place >> 32; }
  static uint32_t RowOf(uint64_t place) { return static_cast<uint32_t>(place); }
  uint32_t StrideNow() const;
  size_t note_bytes() const { return has_notes_ ? sizeof(RowNote) : 0; }
  // Returns the bytes a row takes behind the notes: its mix, and whether it was written lately.
  size_t name_bytes() const { return is_bounded() ? sizeof(uint64_t) + 1 : 0; }
  std::byte* NamesOf(const Page& page) const noexcept {
    return page.memory.data + (size_t{page.stride} + note_bytes()) * page.rows;
  }
  uint64_t* NameAt(uint64_t place) const noexcept {
    return reinterpret_cast<uint64_t*>(NamesOf(pages_[PageOf(place)])) + RowOf(place);
  }
  uint8_t* TouchAt(uint64_t place) const noexcept {
    const Page& page = pages_[PageOf(place)];
    return reinterpret_cast<uint8_t*>(NamesOf(page)) + sizeof(uint64_t) * page.rows + RowOf(place);
  }
  Page NewPage(uint32_t rows) const;
  void MakePageWritable(size_t number);

  DType dtype_;
  DType compute_;
  size_t elements_;
  size_t row_bytes_;
  size_t wide_bytes_;
  bool has_notes_;
  size_t state_count_ = 0;
  bool has_master_ = false;
  uint64_t rule_ = 0;
  uint64_t batch_ = 0;
  std::vector<Page> pages_;
  Tail tail_;
  std::vector<uint64_t> free_;
  uint64_t memory_max_;
  std::optional<DiskPages> disk_;
  Tail hand_;
};

}  // namespace tkv
