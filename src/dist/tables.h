// Whole tables of a store: statistics, and the export and import of rows.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/row_encoder.h"
#include "dist/saver.h"
#include "dist/store_core.h"

namespace tkv {

class Tables {
 public:
  // Makes the access to the tables of a store.  All arguments must outlive it.
  Tables(StoreCore* core, RowEncoder* rows, Saver* saver)
      : core_(*core), rows_(*rows), saver_(*saver) {}

  // As KVStore::StatsOfTable, ExportRows and ImportRows.
  //   verb    the first word of errors
  //   blocks  for each request at most the patience; Export first until another worker's save or
  //           export has ended
  //   throws  kNotFound, kInvalidArgument, and errors of the servers.  An import that fails says
  //           how many rows it has imported.
  TableStats Stats(const std::string& verb, const KeyView& key);
  RowsExport Export(const std::string& verb, const KeyView& key, const RowsFilter& filter);
  void Import(const std::string& verb, const KeyView& key, const Rows& rows);

 private:
  struct CutTable;
  RecordPtr GetTable(const std::string& verb, const KeyView& key);
  // Makes the servers keep the present version of a table for `saving`, after the end of a save or
  // export of another worker.
  //   throws  kFailedPrecondition  another worker has saved or exported for the whole patience
  Outcome CutFor(const std::string& verb, const KeyRecord* record, Saving* saving);
  NDArray ReadRowsPart(const CutTable& cut, uint64_t part, uint64_t first, uint64_t count);
  std::vector<int64_t> ExportedIds(const CutTable& cut, const RowsFilter& filter);
  void ReadValues(const CutTable& cut, const Rows& rows);

  StoreCore& core_;
  RowEncoder& rows_;
  Saver& saver_;
};

}  // namespace tkv
