// Chooses the rows that a table removes by its policy: rows that have expired, and the rows with
// the lowest scores if there are too many.
//
// A value type, as RowStorage is.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rows/row_clock.h"
#include "rows/row_storage.h"
#include "rows/sweep_cursor.h"
#include "tkv/rows.h"

namespace tkv {

class RowEviction {
 public:
  //   buckets  the policy's maximum is shared by so many tables
  RowEviction(const RowPolicy& policy, uint32_t buckets)
      : score_(policy.score), rows_max_((policy.rows_max + buckets - 1) / buckets) {}

  // Each of these returns the mixes of rows in the order in which to remove them.
  //   throws  std::bad_alloc

  // Returns the expired rows of a batch.
  std::vector<uint64_t> ExpiredOf(std::span<const uint64_t> mixes, const RowStorage& rows,
                                  const RowClock& clock) const;
  // Returns the expired rows among the next `count` rows.  Later calls look at the others.
  std::vector<uint64_t> NextExpired(const RowStorage& rows, const RowClock& clock, size_t count);
  // If there are more rows than the maximum, returns the expired ones.  If there are still more,
  // returns also the rows with the lowest scores, so that about 15/16 of the maximum remain.
  std::vector<uint64_t> Surplus(const RowStorage& rows, const RowClock& clock) const;

 private:
  double ScoreOf(const RowStorage& rows, uint64_t place, std::byte* wide) const noexcept;

  RowPolicy::Score score_;
  uint64_t rows_max_;  // of this table; 0: no limit
  SweepCursor next_;   // rows that NextExpired looks at
};

}  // namespace tkv
