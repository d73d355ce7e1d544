// The rows of a key that is kept by rows, found by the mixes of their ids.
//
// A record is a row's value, its float32 master where there is one, and its states.  Records are kept in
// pages; pages that a new rule has left behind are converted when they are next written.
//
// A value type: copies share pages and index, and whoever writes a shared one copies it first, so that a
// copy is a snapshot.  Threads may read one table together.  Batches are read as they come, and fastest in
// ascending order of their mixes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "rows/initial_row.h"
#include "rows/row_index.h"
#include "rows/row_source.h"
#include "rows/row_update.h"

namespace tkv {

// The rows of a batch that may be written, until the table is changed otherwise or copied.
class RowPlaces {
 public:
  size_t size() const noexcept { return places_.size(); }

 private:
  friend class RowTable;
  std::vector<uint64_t> places_;
  std::vector<uint32_t> made_;  // numbers in the batch of rows that were not there
  size_t from_list_ = 0;        // so many of them, the first ones, have places of erased rows
};

class RowTable {
 public:
  //   buckets  all mixes are of one of so many
  //   throws   as InitialRow
  RowTable(DType dtype, size_t row_elements, const RowInitializer& initializer,
           uint32_t buckets = 1);

  // A table without rows, that keeps values only.
  RowTable Emptied() const { return {dtype_, elements_, initial_.initializer(), index_.buckets()}; }
  const RowInitializer& initializer() const noexcept { return initial_.initializer(); }

  size_t size() const noexcept { return index_.size(); }
  size_t memory_bytes() const noexcept;
  DType dtype() const noexcept { return dtype_; }
  size_t row_elements() const noexcept { return elements_; }
  size_t row_bytes() const noexcept { return row_bytes_; }
  size_t state_count() const noexcept { return state_count_; }
  bool has_master() const noexcept { return has_master_; }
  bool Contains(uint64_t mix) const noexcept { return index_.Find(mix) != RowIndex::kNowhere; }

  // Copies values to `out`, one behind the other.  Rows that are not there read as the initializer has
  // them, and stay away.
  void Read(std::span<const uint64_t> mixes, void* out) const noexcept;

  // What updates keep beside a value from now on: states that start at zero, and a master that starts as
  // the value.
  void StartStates(size_t state_count, bool has_master) noexcept;

  // Makes the rows that are not there, and all that writing rows of the batch takes.
  //   throws  kResourceExhausted; the same rows are there as before
  void Reserve(std::span<const uint64_t> mixes, RowPlaces* places);
  // The rows that it has made are gone again; nothing has changed since then.
  void TakeBack(std::span<const uint64_t> mixes, const RowPlaces& places) noexcept;
  // As Reserve, for every row that there is.
  void ReserveAll();

  // Row i of the batch becomes row i of `values`, which are of the table's dtype or, as sums are, of its
  // compute type; so does its master.
  void Assign(const RowPlaces& places, const RowSource& values, DType from) noexcept;
  // Master or a state, of the compute type, as a snapshot has it.
  void AssignMaster(const RowPlaces& places, const RowSource& values) noexcept;
  void AssignState(size_t number, const RowPlaces& places, const RowSource& values) noexcept;
  // Updates the rows by their sums.
  //   mixes  those of the places, each once
  void Update(RowUpdate* update, std::span<const uint64_t> mixes, const RowPlaces& places,
              const RowSource& sums) noexcept;
  // The same, and all other rows by a sum of zero, after ReserveAll.
  //   mixes  ascending, each once and there
  void UpdateAll(RowUpdate* update, std::span<const uint64_t> mixes,
                 const RowSource& sums) noexcept;

  // Rows that are not there count for nothing.  Later rows take the places of those that are gone.
  //   throws  kResourceExhausted; the rows before that one are gone
  void Erase(std::span<const uint64_t> mixes);

  // ---- for snapshots
  // The mixes of at most so many rows from `first` on, ascending.
  std::vector<uint64_t> Mixes(uint64_t first, size_t count_max) const;
  // The same, from the row of that number on.
  std::vector<uint64_t> MixesFrom(uint64_t number, size_t count_max) const;
  // Master and states of rows that are there, of the compute type, one row behind the other.
  void ReadMaster(std::span<const uint64_t> mixes, void* out) const noexcept;
  void ReadState(size_t number, std::span<const uint64_t> mixes, void* out) const noexcept;

  // Whether the same rows have the same values, masters and states.
  bool operator==(const RowTable& other) const;

 private:
  struct Page {
    Block memory;
    uint64_t rule = 0;     // whose states it has
    uint64_t checked = 0;  // number of the last batch that may write it
    uint32_t stride = 0;   // bytes from record to record
    uint32_t rows = 0;
  };
  struct Taken {
    uint64_t place;
    bool is_from_list;  // of erased rows
  };
  class UpdateQueue;
  struct Tail {  // where the next row goes
    size_t page = 0;
    uint32_t row = 0;
  };

  static size_t PageOf(uint64_t place) { return place >> 32; }
  static uint32_t RowOf(uint64_t place) { return static_cast<uint32_t>(place); }
  std::byte* RecordAt(uint64_t place) const noexcept {
    const Page& page = pages_[PageOf(place)];
    return page.memory.data + uint64_t{RowOf(place)} * page.stride;
  }
  void Prefetch(uint64_t place) const noexcept;
  template <typename F>
  void ForPlaces(const RowPlaces& places, F f) noexcept;
  template <typename Found, typename Use>
  void Walk(std::span<const uint64_t> mixes, Found found, Use use) const;

  uint32_t StrideNow() const;
  RowParts PartsOf(std::byte* record) const noexcept;
  Page NewPage(uint32_t rows) const;
  void MakeWritable(size_t number);
  void StartRecord(std::byte* record, const std::byte* value) const noexcept;
  Taken TakePlace();
  void PutBack(const Taken& taken) noexcept;
  void Make(std::span<const uint64_t> mixes, RowPlaces* places);

  DType dtype_;
  DType compute_;
  size_t elements_;
  size_t row_bytes_;
  size_t wide_bytes_;  // of a row in the compute type
  InitialRow initial_;
  size_t state_count_ = 0;
  bool has_master_ = false;
  uint64_t rule_ = 0;
  uint64_t batch_ = 0;
  RowIndex index_;
  std::vector<Page> pages_;
  Tail tail_;
  std::vector<uint64_t> free_;  // places of erased rows
};

}  // namespace tkv
