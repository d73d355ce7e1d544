// Tables of a local store in snapshots: their parts are written and read a few MiB at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/reader.h"
#include "rows/row_table.h"

namespace tkv {

// A source of a table's parts in blocks of rows, for a snapshot.
class TableParts {
 public:
  // Returns the next block of the part, valid until the next call; empty if there is none.  A call
  // for another part begins at the first row.
  std::span<const std::byte> Next(const RowTable& table, const checkpoint::Item& item);

 private:
  std::span<const std::byte> NextOfCandidates(const RowTable& table, bool notes);

  const checkpoint::Item* item_ = nullptr;
  // Lower bound of the mix of the next row; or the number of the next candidate.
  uint64_t first_ = 0;
  std::vector<std::byte> block_;
};

// Reads a snapshot's rows, with their states, into a table.  Existing rows keep their values unless
// `with_values`.
//   throws  as the reader and Reserve do
void ReadInto(const checkpoint::Reader& reader, size_t index, bool with_values, RowTable* table);

}  // namespace tkv
