// Which rows a version of a bucket has, and what is noted of them: the policy of its key as a plain truth,
// with no thought for time or memory.

#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "rows/row_table.h"
#include "simulation/scenario.h"

namespace tkv::simulation {

// What a table, or a cut of one, has of the ids that count: what is noted of each row and candidate.  Rows
// that nobody reads any more are not among them, candidates that count no more may be.
struct SeenRows {
  uint64_t version = 0;
  bool has_notes = false;
  std::map<uint64_t, RowNote> rows;  // by id
  std::map<uint64_t, RowNote> candidates;
};
SeenRows RowsIn(const RowTable& table);
bool IsGone(const RowPolicy& policy, uint64_t now, const RowNote& note);

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
  // Empty, or what the bucket has otherwise.
  std::string Compare(const SimKey& key, uint32_t chunk, const SeenRows& seen) const;

 private:
  void Trim(const SimKey& key, const std::vector<uint64_t>& ids, Lanes* lanes);

  std::array<Row, kRowIds> rows_;
  uint64_t now_ = 0;
};

// Value `before`, if it is added to, and this sum, as an element of the key's dtype.
int64_t Updated(const SimKey& key, int64_t before, int64_t sum, bool accumulate);

}  // namespace tkv::simulation
