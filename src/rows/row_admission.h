// Decides which pushed ids get a row.  An id that was not pushed often enough is a candidate, whose
// pushes are counted.
//
// A value type, as RowIndex is.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/candidates.h"
#include "rows/row_clock.h"
#include "rows/sweep_cursor.h"

namespace tkv {

class RowAdmission {
 public:
  enum class Decision : uint8_t {
    kRow,           // the id gets a row
    kCandidate,     // it stays a candidate
    kNewCandidate,  // it has become one, with a count of 0
  };

  //   admit_count  number of the push that admits an id, from 1
  //   buckets      the ids of a key are divided into so many; all mixes here are of one
  RowAdmission(uint32_t admit_count, uint32_t buckets)
      : admit_count_(admit_count), candidates_(buckets) {}

  const Candidates& candidates() const noexcept { return candidates_; }
  // Returns true if the first push of an id does not admit it.
  bool counts() const noexcept { return admit_count_ > 1; }

  // Decides on the push of an id that has no row.  Afterwards Count and Forget cannot fail for it.
  //   throws  std::bad_alloc, as RowIndex::Insert
  Decision Decide(uint64_t mix, const RowClock& clock);
  // Counts the push of a candidate.
  void Count(uint64_t mix, const RowClock& clock) noexcept;
  // Forgets the pushes of an id, which need not be a candidate.
  //   throws  as Candidates::Erase
  void Forget(uint64_t mix) {
    if (candidates_.size() > 0) candidates_.Erase(mix);
  }
  // Removes expired candidates among the next `count` ones.  Later calls look at the others.
  //   throws  std::bad_alloc
  void RemoveExpired(const RowClock& clock, size_t count);
  // Does as Candidates::Put.
  void Put(const Candidate& candidate) { candidates_.Put(candidate); }

 private:
  RowNote NoteOf(uint64_t mix, const RowClock& clock) const noexcept;

  uint32_t admit_count_;
  Candidates candidates_;
  SweepCursor next_;  // candidates that RemoveExpired looks at
};

}  // namespace tkv
