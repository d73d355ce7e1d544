// Stores the rows of a sparse key, found by the mixes of their ids: values, the states of their
// optimizer, and notes of their pushes.  A policy says which pushed ids get a row, and which rows
// are removed.
//
// A value type: copies share records and index, and a writer copies a shared part first, so a copy
// is a snapshot.  Several threads may read one table at once.  A batch may be in any order;
// ascending mixes are fastest.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rows/candidates.h"
#include "rows/initial_row.h"
#include "rows/reserved_rows.h"
#include "rows/row_admission.h"
#include "rows/row_clock.h"
#include "rows/row_eviction.h"
#include "rows/row_source.h"
#include "rows/row_storage.h"
#include "rows/row_update.h"
#include "tkv/rows.h"

namespace tkv {

class RowTable {
 public:
  //   buckets  the ids of a key are divided into so many; all mixes here are of one
  //   disk     for rows that exceed the policy's memory
  //   throws   as InitialRow, kInvalidArgument (a policy that is not possible), kFailedPrecondition
  //            (memory is bounded and there is no disk)
  RowTable(DType dtype, size_t row_elements, const RowInitializer& initializer,
           uint32_t buckets = 1, const RowPolicy& policy = {},
           std::shared_ptr<RowDisk> disk = nullptr);

  // Returns a table without rows, with the same options, version and number of evicted rows.  Its
  // rows will have states of the same kind.
  RowTable Emptied() const;
  const RowInitializer& initializer() const noexcept { return initial_.initializer(); }
  const RowPolicy& policy() const noexcept { return policy_; }
  // Returns the numbers of rows, candidates and bytes, and the version.
  TableStats Stats() const noexcept;

  size_t size() const noexcept { return storage_.size(); }
  size_t memory_bytes() const noexcept {
    return storage_.memory_bytes() + admission_.candidates().memory_bytes();
  }
  DType dtype() const noexcept { return pages().dtype(); }
  size_t row_elements() const noexcept { return pages().elements(); }
  size_t row_bytes() const noexcept { return pages().row_bytes(); }
  size_t state_count() const noexcept { return pages().state_count(); }
  bool has_master() const noexcept { return pages().has_master(); }
  bool Contains(uint64_t mix) const noexcept;

  // Copies the rows' values to `out`, one behind the other.  A missing row reads as its initial
  // value and is not made.
  //   blocks  while the disk reads
  //   throws  only if rows are on a disk: kUnavailable, kResourceExhausted, std::bad_alloc; `out`
  //          is then undefined
  void Read(std::span<const uint64_t> mixes, void* out) const;
  // Returns the ranges on the disk of the batch's rows that are not in memory.
  std::vector<DiskRange> RangesOnDisk(std::span<const uint64_t> mixes) const {
    return storage_.RangesOnDisk(mixes);
  }

  // Sets what updates keep for each row from now on: states that start at zero, and a master that
  // starts as the value.
  void StartStates(size_t state_count, bool has_master) noexcept {
    storage_.StartStates(state_count, has_master);
  }

  // Makes the missing rows of a batch, and copies whatever is shared, so that writing the rows
  // cannot fail.
  //   blocks  while the disk reads, and up to a second until it has written rows that are to leave
  //           the memory
  //   throws  kResourceExhausted, kUnavailable (the disk); the table has the same rows as before
  void Reserve(std::span<const uint64_t> mixes, ReservedRows* reserved);
  // Removes the rows and candidates that Reserve or Admit has made.  Call it before any other
  // change of the table.
  void TakeBack(std::span<const uint64_t> mixes, const ReservedRows& reserved) noexcept;
  // Does as Reserve, for every row of the table.
  //   throws  also kFailedPrecondition (some rows are on a disk)
  void ReserveAll();
  // Does as Reserve, for a push: makes only the missing rows that the policy admits.  Rows of the
  // batch that have expired are removed before.
  //   mixes  each once
  void Admit(std::span<const uint64_t> mixes, ReservedRows* reserved);
  // Counts the push whose rows Admit has prepared.
  void NotePush(std::span<const uint64_t> mixes, const ReservedRows& reserved) noexcept;
  // Ends a version, even one without any push.  Looks at some rows and removes those that the
  // policy does not keep.  Later versions look at the others.
  void Advance() noexcept;
  // Moves rows that exceed the policy's memory to the disk, about the least recently written rows
  // first, and compacts pages on the disk.  If the disk does not keep up, a later call moves them.
  void Settle() noexcept { storage_.Settle(); }
  // Sets the version from which the table continues; notes are of it or earlier ones.
  void ContinueFrom(uint64_t version) noexcept { clock_.ContinueFrom(version); }
  uint64_t version() const noexcept { return clock_.version(); }

  // Sets row i of the batch, and its master, to row i of `values`.
  //   from  dtype of the values: the table's, or its compute type for sums
  void Assign(const ReservedRows& reserved, const RowSource& values, DType from) noexcept;
  // Sets the master or one state of each row, in the compute type, as a snapshot has it.
  void AssignMaster(const ReservedRows& reserved, const RowSource& values) noexcept;
  void AssignState(size_t number, const ReservedRows& reserved, const RowSource& values) noexcept;
  // Updates the rows with their sums.
  //   mixes  of the reserved rows, each once
  void Update(RowUpdate* update, std::span<const uint64_t> mixes, const ReservedRows& reserved,
              const RowSource& sums) noexcept;
  // Updates the rows with their sums, and all other rows with a sum of zero.  Call ReserveAll
  // before.
  //   mixes  ascending, each once
  void UpdateAll(RowUpdate* update, std::span<const uint64_t> mixes,
                 const RowSource& sums) noexcept;

  // Removes the rows and candidates of the ids, and forgets their earlier pushes.  Missing ids are
  // ignored.  Later rows reuse the places.
  //   throws  kResourceExhausted; the rows before the failing one are removed
  void Erase(std::span<const uint64_t> mixes);

  // ---- for snapshots
  // Returns the mixes of at most `count_max` rows, ascending, from the mix `first` on.
  std::vector<uint64_t> Mixes(uint64_t first, size_t count_max) const;
  // Returns at most `count_max` mixes, ascending, from the row on that `number` rows precede.
  std::vector<uint64_t> MixesFrom(uint64_t number, size_t count_max) const;
  // Copies the masters or one state of rows of the table to `out`, in the compute type, one row
  // behind the other.
  //   blocks, throws  as Read
  void ReadMaster(std::span<const uint64_t> mixes, void* out) const;
  void ReadState(size_t number, std::span<const uint64_t> mixes, void* out) const;
  // Copies the notes of rows of the table.  The table has notes.
  void ReadNotes(std::span<const uint64_t> mixes, RowNote* out) const noexcept;
  void AssignNotes(const ReservedRows& reserved, const RowNote* notes) noexcept;
  // Sets the notes of imported rows: no push counts, and their age begins with the next version.
  void NoteImport(const ReservedRows& reserved) noexcept;
  // The pushed ids that have no row yet.
  const Candidates& candidates() const noexcept { return admission_.candidates(); }
  // Does as Candidates::Put.
  //   throws  kInvalidArgument (a count or a version that a candidate cannot have),
  //           kResourceExhausted; nothing changed
  void PutCandidate(const Candidate& candidate);

 private:
  template <typename F>
  void ForEach(const ReservedRows& reserved, F f) noexcept;

  const RowPages& pages() const noexcept { return storage_.pages(); }
  DType compute() const noexcept { return pages().compute(); }
  size_t wide_bytes() const noexcept { return pages().wide_bytes(); }
  void Prepare(std::span<const uint64_t> mixes, bool is_push, ReservedRows* reserved);
  void Make(std::span<const uint64_t> mixes, bool is_push, ReservedRows* reserved);
  void Start(std::span<const uint64_t> mixes, const ReservedRows& reserved) noexcept;
  void Evict(std::span<const uint64_t> mixes);

  InitialRow initial_;
  RowPolicy policy_;
  RowStorage storage_;
  RowClock clock_;
  RowAdmission admission_;
  RowEviction eviction_;
  uint64_t evicted_ = 0;
  size_t pushed_ = 0;  // ids pushed in the current version
};

}  // namespace tkv
