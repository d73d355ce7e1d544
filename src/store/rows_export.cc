#include "store/rows_export.h"

#include <algorithm>
#include <vector>

#include "base/mix.h"
#include "rows/sparse_sum.h"
#include "store/checks.h"
#include "store/local_rows.h"

namespace tkv {

RowsExport ExportOf(const Shape& row_shape, const RowTable& table, const RowsFilter& filter,
                    int threads) {
  constexpr size_t kBlock = 4096;
  std::vector<int64_t> ids;
  std::vector<RowNote> notes(filter.since ? kBlock : 0);
  for (uint64_t first = 0;;) {
    const std::vector<uint64_t> mixes = table.Mixes(first, kBlock);
    if (filter.since) table.ReadNotes(mixes, notes.data());
    for (size_t i = 0; i < mixes.size(); ++i) {
      const uint64_t id = Unmix(mixes[i]);
      const bool is_asked = id >= filter.first && id < filter.end &&
                            (!filter.since || notes[i].version > *filter.since);
      if (is_asked && table.Contains(mixes[i])) ids.push_back(static_cast<int64_t>(id));
    }
    if (mixes.size() < kBlock || mixes.back() == UINT64_MAX) break;
    first = mixes.back() + 1;
  }
  std::sort(ids.begin(), ids.end());
  RowsExport made{MakeRows(ids, row_shape, table.dtype()), table.version()};
  ReadRows(table, ids.data(), ids.size(), made.rows.values.HostData(), table.dtype(), threads);
  return made;
}

RowTable WithRows(std::string_view verb, const Entry& entry, const Rows& rows,
                  std::chrono::nanoseconds patience) {
  std::vector<NDArray> kept;
  const RowList list =
      TakeRows(verb, entry.key.view(), rows, entry.rows->row_count, patience, &kept);
  CheckEachOnce(verb, entry.key.view(), list.ids);
  RowTable table = entry.rows->table;
  const SparseSum sum =
      SparseSum::Of({&list, 1}, entry.rows->row_count, table.dtype(), table.row_elements(),
                    RowOrder::kMix, SparseSum::Memory::kBorrow);
  table.Erase(sum.names());
  ReservedRows reserved;
  table.Reserve(sum.names(), &reserved);
  table.Assign(reserved, sum.values(), sum.dtype());
  table.NoteImport(reserved);
  table.Settle();
  return table;
}

}  // namespace tkv
