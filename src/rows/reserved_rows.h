// Refers to the rows of a batch that is about to be written.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tkv {

// The rows of a batch that a table has reserved.  They may be written until the table is copied or
// changed otherwise.  An id that the table's policy does not admit has no row, and writes to it are
// skipped.
class ReservedRows {
 private:
  friend class RowStorage;
  friend class RowTable;
  std::vector<uint64_t> places_;  // of the records, by number in the batch
  std::vector<uint32_t> made_;    // numbers in the batch of rows that were made
  size_t from_list_ = 0;          // how many of them, the first ones, have places of erased rows
  bool is_writable_ = false;      // no page has to be copied before the rows are written
  std::vector<uint32_t> new_candidates_;  // numbers in the batch of ids that became candidates
};

}  // namespace tkv
