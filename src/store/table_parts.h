// Tables of a local store on disk: their parts, written and read a few MiB at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/snapshot.h"
#include "rows/row_table.h"

namespace tkv {

// Hands over a part of a table in blocks of rows, as a snapshot has it.
class TableParts {
 public:
  // The next block of the part, until the next call; nothing where there is none.  Another part
  // begins with its first row.
  std::span<const std::byte> Next(const RowTable& table, const checkpoint::Item& item);

 private:
  std::span<const std::byte> NextOfCandidates(const RowTable& table, bool notes);

  const checkpoint::Item* item_ = nullptr;
  uint64_t first_ = 0;  // mix of the next row, at least; number of the next candidate
  std::vector<std::byte> block_;
};

// Rows of a snapshot become rows of a table, with their states; those that are there keep their values unless
// these are wanted, too.
//   throws  as the reader and Reserve do
void ReadInto(const checkpoint::Reader& reader, size_t index, bool with_values, RowTable* table);

}  // namespace tkv
