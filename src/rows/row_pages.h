// Stores records of rows in memory, in pages.
//
// A record is a row's value, its float32 master if it has one, and its optimizer states.  The notes
// of a page's rows follow its records, and the names behind them.  A page whose states belong to an
// earlier update rule is converted when it is next written.
//
// A value type: copies share pages, and a writer copies a shared page first.  Several threads may
// read the records at once.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/round_up.h"
#include "rows/prefetch.h"
#include "rows/row_note.h"
#include "rows/row_update.h"

namespace tkv {

class RowPages {
 public:
  //   has_names  a record has its row's mix beside it, by which the index finds the row
  RowPages(DType dtype, size_t elements, bool has_notes, bool has_names);

  DType dtype() const noexcept { return dtype_; }
  DType compute() const noexcept { return compute_; }
  size_t elements() const noexcept { return elements_; }
  size_t row_bytes() const noexcept { return row_bytes_; }
  size_t wide_bytes() const noexcept { return wide_bytes_; }  // bytes of a row in the compute type
  size_t state_count() const noexcept { return state_count_; }
  bool has_master() const noexcept { return has_master_; }
  bool has_notes() const noexcept { return has_notes_; }
  uint64_t rule() const noexcept { return rule_; }  // number of the current update rule
  size_t memory_bytes() const noexcept;
  // Returns the bytes of a record with the states of the current update rule.
  //   throws  kResourceExhausted (more than 1 GiB)
  uint32_t Stride() const;
  // Returns the bytes of a record with its note and its name.
  size_t BytesPerRow() const { return Stride() + note_bytes() + name_bytes(); }

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
  // Gives a place back, to the end of the pages or to the list of freed places.  Call it in the
  // reverse order of TakePlace.  The list still has the capacity.
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
  RowNote* NoteAt(uint64_t place) const noexcept {
    const Page& page = pages_[PageOf(place)];
    return reinterpret_cast<RowNote*>(page.memory.data + uint64_t{page.rows} * page.stride) +
           RowOf(place);
  }
  // Returns true if a record has the states of the current update rule.  Otherwise it has no
  // states.
  bool HasStates(uint64_t place) const noexcept { return pages_[PageOf(place)].rule == rule_; }
  void Prefetch(uint64_t place) const noexcept { PrefetchBytes(At(place), StrideAt(place)); }
  size_t StrideAt(uint64_t place) const noexcept { return pages_[PageOf(place)].stride; }

  // ---- to choose rows that leave the memory; only if the pages have names
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
  size_t note_bytes() const { return has_notes_ ? sizeof(RowNote) : 0; }
  // Returns the bytes a row takes behind the notes: its mix, and whether it was written lately.
  size_t name_bytes() const { return has_names_ ? sizeof(uint64_t) + 1 : 0; }
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
  bool has_names_;
  size_t state_count_ = 0;
  bool has_master_ = false;
  uint64_t rule_ = 0;
  uint64_t batch_ = 0;
  std::vector<Page> pages_;
  Tail tail_;
  std::vector<uint64_t> free_;
  Tail hand_;  // place of the record that NextPlace examines next
};

}  // namespace tkv
