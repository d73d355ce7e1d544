// Which rows a version of a bucket has, and what is noted of them: the policy of its key as a plain truth,
// with no thought for time or memory.

#pragma once

#include <array>

#include "rows/row_table.h"
#include "simulation/scenario.h"

namespace tkv::simulation {

class RowTruth {
 public:
  struct Row {
    bool is_there = false;
    RowNote note;       // of one that is there
    RowNote candidate;  // of one that is not; count 0: it is none
  };

  RowTruth() = default;
  // The rows of an INIT.
  explicit RowTruth(RowSet initial);

  const Row& row(uint64_t id) const { return rows_[id]; }
  // The version that is made of these pushed rows follows.
  //   sum    of the pushes, row by row
  //   lanes  what the rows read as
  void Advance(const SimKey& key, uint32_t chunk, RowSet pushed, const Lanes& sum, bool accumulate,
               Lanes* lanes);
  // Empty, or what the table has otherwise.
  std::string Compare(const SimKey& key, uint32_t chunk, const RowTable& table) const;

 private:
  bool IsGone(const RowPolicy& policy, const RowNote& note) const {
    return policy.age_max > 0 && now_ > note.version && now_ - note.version > policy.age_max;
  }
  void Trim(const SimKey& key, const std::vector<uint64_t>& ids, Lanes* lanes);

  std::array<Row, kRowIds> rows_;
  uint64_t now_ = 0;
};

// Value `before`, if it is added to, and this sum, as an element of the key's dtype.
int64_t Updated(const SimKey& key, int64_t before, int64_t sum, bool accumulate);

}  // namespace tkv::simulation
