// Rows on the wire: pushes of rows and requests for rows are encoded here, and rows that have arrived
// are copied to the outputs.

#pragma once

#include <span>
#include <string_view>

#include "dist/scratch.h"
#include "dist/transfers.h"
#include "rows/sparse_sum.h"
#include "store/checks.h"

namespace tkv {

// Returns the form of the rows of a table, or of a dense key, whose first dimension counts rows.
//   throws  kInvalidArgument  the value of the key has no rows
RowGeometry GeometryOf(std::string_view verb, const KeyRecord& record);

// Encodes rows in memory that is kept for later calls.  Thread-safe.
class RowEncoder {
 public:
  // Encodes a contribution of rows to a table.  Rows of the same id are summed.
  //   throws  kResourceExhausted
  void EncodeRows(std::string_view verb, std::span<const RowList> lists, PushSource* source);
  // Encodes a contribution of rows to a dense key.
  //   throws  as EncodeRows
  void EncodeRuns(std::string_view verb, std::span<const RowList> lists, PushSource* source);
  // Encodes a push of whole arrays to a table, as a push of all its rows.
  //   throws  as EncodeRows
  void EncodeAllRows(std::string_view verb, std::span<const NDArray* const> values,
                     PushSource* source);
  // Sorts the ids, encodes the request for their rows, and allocates the memory in which the rows
  // arrive.
  //   throws  kResourceExhausted
  void AskForRows(std::span<const int64_t> ids, PullTarget* target);
  // Asks for every row of a table, for outputs that are whole arrays.
  //   throws  as AskForRows
  void AskForAllRows(PullTarget* target);

 private:
  Scratch scratch_;
};

// Copies the rows that have arrived to the rows of the outputs that asked for them.
//   throws  kResourceExhausted
void ScatterRows(const PullTarget& target);

}  // namespace tkv
