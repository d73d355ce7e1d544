// The rows of a key that is kept by rows, found by the mixes of their ids.
//
// A value type: copies share records and index, and whoever writes a shared part copies it first, so that a
// copy is a snapshot.  Threads may read one table together.  Batches are read as they come, and fastest in
// ascending order of their mixes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "rows/initial_row.h"
#include "rows/row_index.h"
#include "rows/row_pages.h"
#include "rows/row_source.h"
#include "rows/row_update.h"
#include "tkv/rows.h"

namespace tkv {

// The rows of a batch that may be written, until the table is changed otherwise or copied.  Those that
// the policy of a table does not let in are among them, and nothing is written to these.
class RowPlaces {
 public:
  size_t size() const noexcept { return places_.size(); }

 private:
  friend class RowTable;
  std::vector<uint64_t> places_;
  std::vector<uint32_t> made_;  // numbers in the batch of rows that were not there
  size_t from_list_ = 0;        // so many of them, the first ones, have places of erased rows
  std::vector<uint32_t> new_candidates_;
};

class RowTable {
 public:
  //   buckets  all mixes are of one of so many
  //   disk     for rows beyond the policy's memory
  //   throws   as InitialRow, kInvalidArgument (a policy that cannot be), kFailedPrecondition (memory is
  //            bounded and there is no disk)
  RowTable(DType dtype, size_t row_elements, const RowInitializer& initializer,
           uint32_t buckets = 1, const RowPolicy& policy = {},
           std::shared_ptr<RowDisk> disk = nullptr);

  // The policy as a table has it: with notes where it needs them.
  //   throws   kInvalidArgument
  static RowPolicy CheckedPolicy(const RowPolicy& policy, DType dtype);

  // A table without rows, that keeps values only.
  RowTable Emptied() const;
  const RowInitializer& initializer() const noexcept { return initial_.initializer(); }
  const RowPolicy& policy() const noexcept { return policy_; }
  // Of rows, candidates and memory, and of the version.
  TableStats Stats() const noexcept;

  size_t size() const noexcept { return index_.size(); }
  size_t memory_bytes() const noexcept;
  DType dtype() const noexcept { return pages_.dtype(); }
  size_t row_elements() const noexcept { return pages_.elements(); }
  size_t row_bytes() const noexcept { return pages_.row_bytes(); }
  size_t state_count() const noexcept { return pages_.state_count(); }
  bool has_master() const noexcept { return pages_.has_master(); }
  bool Contains(uint64_t mix) const noexcept;

  // Copies values to `out`, one behind the other.  Rows that are not there read as the initializer has
  // them, and stay away.
  //   blocks  while the disk reads
  //   throws  where rows are on a disk: kUnavailable, kResourceExhausted; then nothing is known of `out`
  void Read(std::span<const uint64_t> mixes, void* out) const;
  // Where the rows of a batch are that the disk has to read.
  std::vector<DiskPages::Where> OnDisk(std::span<const uint64_t> mixes) const;

  // What updates keep beside a value from now on: states that start at zero, and a master that starts as
  // the value.
  void StartStates(size_t state_count, bool has_master) noexcept {
    pages_.StartStates(state_count, has_master);
  }

  // Makes the rows that are not there, and all that writing rows of the batch takes.
  //   blocks  while the disk reads
  //   throws  kResourceExhausted, kUnavailable (the disk); the same rows are there as before
  void Reserve(std::span<const uint64_t> mixes, RowPlaces* places);
  // The rows that it has made are gone again; nothing has changed since then.
  void TakeBack(std::span<const uint64_t> mixes, const RowPlaces& places) noexcept;
  // As Reserve, for every row that there is.
  //   throws  also kFailedPrecondition (some are on a disk)
  void ReserveAll();
  // As Reserve, for a push: of the rows that are not there those alone are made that the policy lets in.
  //   mixes  each once
  void Admit(std::span<const uint64_t> mixes, RowPlaces* places);
  // A push has brought the rows that Admit has had.
  void NotePush(std::span<const uint64_t> mixes, const RowPlaces& places) noexcept;
  // A version has ended, be it without any push.  Rows go that the policy does not keep; where the memory
  // for that is lacking, later.
  void Advance() noexcept;
  // Rows beyond the policy's memory go to the disk, those first that have not been written for the longest
  // time; where the disk does not keep up, later.
  void Settle() noexcept;
  // The table goes on from this version; notes are of it and of earlier ones.
  void ContinueFrom(uint64_t version) noexcept { now_ = version; }
  uint64_t version() const noexcept { return now_; }

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
  //   mixes  ascending, each once
  void UpdateAll(RowUpdate* update, std::span<const uint64_t> mixes,
                 const RowSource& sums) noexcept;

  // Rows that are not there count for nothing, and neither do earlier pushes of the ids.  Later rows take
  // the places of those that are gone.
  //   throws  kResourceExhausted; the rows before that one are gone
  void Erase(std::span<const uint64_t> mixes);

  // ---- for snapshots
  // The mixes of at most so many rows from `first` on, ascending.
  std::vector<uint64_t> Mixes(uint64_t first, size_t count_max) const;
  // The same, from the row of that number on.
  std::vector<uint64_t> MixesFrom(uint64_t number, size_t count_max) const;
  // Master and states of rows that are there, of the compute type, one row behind the other.
  //   blocks, throws  as Read
  void ReadMaster(std::span<const uint64_t> mixes, void* out) const;
  void ReadState(size_t number, std::span<const uint64_t> mixes, void* out) const;
  // Of rows that are there, of a table that has notes.
  void ReadNotes(std::span<const uint64_t> mixes, RowNote* out) const noexcept;
  void AssignNotes(const RowPlaces& places, const RowNote* notes) noexcept;
  // Rows that no push has brought begin with the next version.
  void NoteImport(const RowPlaces& places) noexcept;
  // Ids without a row that are counted, by their mixes, ascending: at most so many from that number on.
  struct Candidate {
    uint64_t mix;
    RowNote note;
  };
  size_t candidate_count() const noexcept { return candidates_.size(); }
  std::vector<Candidate> CandidatesFrom(uint64_t number, size_t count_max) const;
  //   throws  kInvalidArgument (more than a candidate can have), kResourceExhausted; nothing changed
  void PutCandidate(const Candidate& candidate);

  // Whether the same rows have the same values, masters, states and notes.
  //   blocks, throws  as Read
  bool operator==(const RowTable& other) const;

 private:
  class UpdateQueue;

  bool IsGone(const RowNote& note) const noexcept {
    return now_ > note.version && now_ - note.version > policy_.age_max;
  }
  template <typename F>
  void ForPlaces(const RowPlaces& places, F f) noexcept;
  template <typename Found, typename Use>
  void Walk(std::span<const uint64_t> mixes, Found found, Use use) const;

  DType compute() const noexcept { return pages_.compute(); }
  size_t wide_bytes() const noexcept { return pages_.wide_bytes(); }
  void ReserveSome(std::span<const uint64_t> mixes, bool is_push, RowPlaces* places);
  void Make(std::span<const uint64_t> mixes, bool is_push, RowPlaces* places);
  bool LetsIn(uint64_t mix, uint32_t number, RowPlaces* places);
  RowNote CandidateOf(uint64_t mix) const noexcept;
  template <typename Use>
  void ReadRecords(std::span<const uint64_t> mixes, Use use) const;
  template <typename Use>
  void ReadFromDisk(std::span<const uint64_t> mixes, std::span<const uint32_t> numbers,
                    size_t bytes, Use use) const;
  size_t FromDisk(std::span<const uint64_t> mixes, RowPlaces* places);
  void CheckMemory();
  void DropGone(std::span<const uint64_t> mixes);
  void Sweep(size_t count);
  void Trim();
  double ScoreOf(uint64_t place, std::byte* wide) const noexcept;

  InitialRow initial_;
  RowPolicy policy_;
  RowPages pages_;
  RowIndex index_;

  uint64_t now_ = 0;  // the version
  RowIndex
      candidates_;  // ids that have been pushed and have no row, packed notes in place of places
  uint64_t evicted_ = 0;
  size_t pushed_ = 0;                           // rows since the version before
  size_t dead_ = 0;                             // rows that the disk has lost since Settle
  uint64_t next_row_ = 0, next_candidate_ = 0;  // mixes that are looked at next
};

}  // namespace tkv
