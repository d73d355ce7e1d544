// Export of rows from a table of a local store, and import of rows without the updater.

#pragma once

#include <chrono>
#include <string_view>

#include "rows/row_table.h"
#include "store/key_table.h"
#include "tkv/kvstore.h"

namespace tkv {

// Returns the rows of a table that pass a filter, ascending by id.
RowsExport ExportOf(const Shape& row_shape, const RowTable& table, const RowsFilter& filter,
                    int threads);
// Returns a copy of the key's table in which these rows start with these values and fresh states.
//   blocks  until the rows can be read, at most `patience`
//   throws  kOutOfRange, kInvalidArgument (an id appears twice), kResourceExhausted
RowTable WithRows(std::string_view verb, const Entry& entry, const Rows& rows,
                  std::chrono::nanoseconds patience);

}  // namespace tkv
