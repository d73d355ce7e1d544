// Predicts the rows and notes of each version of a bucket: a simple implementation of the key's
// policy that ignores time and memory.

#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "rows/row_table.h"
#include "simulation/scenario.h"
#include "simulation/sim_values.h"

namespace tkv::simulation {

// The rows, candidates and notes of a table or of a saved version, of the ids below kRowIds.
// Expired rows are excluded; expired candidates may be included.
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
    RowNote note;       // its note, if it is there
    RowNote candidate;  // its note as a candidate, if it is not there; count 0: no candidate
  };

  RowTruth() = default;
  // Begins with the rows of an INIT.
  explicit RowTruth(RowSet initial);

  const Row& row(uint64_t id) const { return rows_[id]; }
  // Makes the next version from the pushed rows.
  //   sum    the sum of the pushes, row by row
  //   lanes  the values of the rows, which are updated
  void Advance(const SimKey& key, uint32_t chunk, RowSet pushed, const Lanes& sum, bool accumulate,
               Lanes* lanes);
  // Removes all rows, as a push to a key of `replaces_all` does first.
  void Clear(const SimKey& key, uint32_t chunk, Lanes* lanes);
  // Returns an empty text if the bucket is as predicted, or the first difference.
  std::string Compare(const SimKey& key, uint32_t chunk, const SeenRows& seen) const;

 private:
  void Trim(const SimKey& key, const std::vector<uint64_t>& ids, Lanes* lanes);

  std::array<Row, kRowIds> rows_;
  uint64_t now_ = 0;
};

// Returns `sum`, added to `before` if the update accumulates, as an element of the key's dtype.
int64_t Updated(const SimKey& key, int64_t before, int64_t sum, bool accumulate);

}  // namespace tkv::simulation
