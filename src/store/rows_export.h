// Rows that go out of a table of a local store as a whole, and rows that come in beside the updater.

#pragma once

#include <chrono>
#include <string_view>

#include "rows/row_table.h"
#include "store/key_table.h"
#include "tkv/kvstore.h"

namespace tkv {

// Rows of a table that a filter lets through, ascending by id.
RowsExport ExportOf(const Shape& row_shape, const RowTable& table, const RowsFilter& filter,
                    int threads);
// A table in which rows have begun anew with these values.
//   blocks  until they can be read, at most the patience
//   throws  kOutOfRange, kInvalidArgument (an id stands twice), kResourceExhausted
RowTable WithRows(std::string_view verb, const Entry& entry, const Rows& rows,
                  std::chrono::nanoseconds patience);

}  // namespace tkv
