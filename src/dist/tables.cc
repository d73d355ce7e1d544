#include "dist/tables.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "base/format.h"
#include "base/mix.h"
#include "dist/cut_after_others.h"
#include "rows/row_table.h"
#include "store/checks.h"
#include "wire/message.h"

namespace tkv {
namespace {

constexpr uint64_t kRowsAtOnce = uint64_t{1} << 19;
constexpr size_t kBytesAtOnce = size_t{64} << 20;

}  // namespace

// A version of a table that servers keep.
struct Tables::CutTable {
  std::string verb;
  RecordPtr record;
  std::shared_ptr<const KeyMeta> meta;
  std::shared_ptr<const std::vector<ChunkState>> states;  // of each bucket

  uint64_t rows() const {
    return std::accumulate(states->begin(), states->end(), uint64_t{0},
                           [](uint64_t sum, const ChunkState& state) { return sum + state.rows; });
  }
};

RecordPtr Tables::GetTable(const std::string& verb, const KeyView& key) {
  core_.calls.RaiseUnseen(verb, {&key, 1});
  const auto lock = core_.Lock(verb);
  RecordPtr record = core_.keys.Get(verb, key);
  CheckByRows(verb, key, record->info.by_rows);
  return record;
}

TableStats Tables::Stats(const std::string& verb, const KeyView& key) {
  const RecordPtr record = GetTable(verb, key);
  const Outcome outcome =
      core_.calls.AwaitOutcome(verb, core_.calls.Make(Operation::Stats{}, verb, record.get()));
  return *outcome.As<TableStats>();
}

// ---- export -------------------------------------------------------------------------------------

// Reads one part of `count` rows from row `first` on, counted over all buckets.
NDArray Tables::ReadRowsPart(const CutTable& cut, uint64_t part, uint64_t first, uint64_t count) {
  const size_t bytes = ChunkState::RowBytes(part, cut.meta->dtype, cut.meta->elements()) * count;
  const NDArray buffer = BytesOf(bytes);
  Operation::Read read{cut.meta, cut.states, part, {first, count}, {}};
  read.pull.out = BlockOf(buffer);
  core_.calls.AwaitOutcome(cut.verb, core_.calls.Make(std::move(read), cut.verb, cut.record.get()));
  return buffer;
}

// Returns the ids that pass the filter, ascending.
std::vector<int64_t> Tables::ExportedIds(const CutTable& cut, const RowsFilter& filter) {
  const uint64_t rows = cut.rows();
  const uint64_t age_max = cut.meta->policy.age_max;
  const bool needs_notes = filter.since.has_value() || age_max > 0;
  std::vector<int64_t> ids;
  size_t bucket = 0;
  uint64_t bucket_end = (*cut.states)[0].rows;
  for (uint64_t first = 0; first < rows; first += kRowsAtOnce) {
    const uint64_t count = std::min(kRowsAtOnce, rows - first);
    const NDArray block = ReadRowsPart(cut, ChunkState::kIds, first, count);
    const auto* const some = static_cast<const uint64_t*>(block.HostData());
    NDArray notes_block;
    if (needs_notes) notes_block = ReadRowsPart(cut, ChunkState::kNotes, first, count);
    const auto* const notes =
        needs_notes ? static_cast<const RowNote*>(notes_block.HostData()) : nullptr;
    for (uint64_t i = 0; i < count; ++i) {
      while (first + i >= bucket_end) bucket_end += (*cut.states)[++bucket].rows;
      if (some[i] < filter.first || some[i] >= filter.end) continue;
      if (needs_notes) {
        const uint64_t now = (*cut.states)[bucket].row_version;
        const uint64_t version = notes[i].version;
        if (filter.since && version <= *filter.since) continue;
        // the row has expired
        if (age_max > 0 && now > version && now - version > age_max) continue;
      }
      ids.push_back(static_cast<int64_t>(some[i]));
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Reads the values of all rows in `rows`.
void Tables::ReadValues(const CutTable& cut, const Rows& rows) {
  const auto all = static_cast<size_t>(rows.ids.size());
  const auto* const ids = static_cast<const int64_t*>(rows.ids.HostData());
  auto* const values = static_cast<std::byte*>(rows.values.HostData());
  const size_t row_bytes = cut.record->value_bytes;
  const size_t at_once = std::max<size_t>(1, kBytesAtOnce / row_bytes);
  for (size_t first = 0; first < all; first += at_once) {
    const size_t count = std::min(at_once, all - first);
    PullTarget target;
    target.record = cut.record;
    rows_.AskForRows({ids + first, count}, &target);
    Operation::Read read{cut.meta, cut.states, ChunkState::kValue, {}, {}};
    read.pull = {target.ids, BlockOf(target.landing)};
    core_.calls.AwaitOutcome(cut.verb,
                             core_.calls.Make(std::move(read), cut.verb, cut.record.get()));
    const auto* const landed = static_cast<const std::byte*>(target.landing.HostData());
    for (size_t i = 0; i < target.order->size(); ++i) {
      const size_t row = first + target.order->PositionsOf(i)[0];
      std::memcpy(values + row * row_bytes, landed + i * row_bytes, row_bytes);
    }
  }
}

Outcome Tables::CutFor(const std::string& verb, const KeyRecord* record, Saving* saving) {
  const auto cut = [&] {
    try {
      return core_.calls.AwaitOutcome(verb, core_.calls.Make(Operation::Cut{}, verb, record));
    } catch (...) {
      saving->Release();
      throw;
    }
  };
  try {
    return CutAfterOthers(core_.options.patience, core_.options.interrupt, cut);
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (!text.ends_with(kIsSaving)) throw;
    throw Fail(error.code(), "{} or exporting; one worker does at a time; waited {:.1f} s", text,
               std::chrono::duration<double>(core_.options.patience).count());
  }
}

RowsExport Tables::Export(const std::string& verb, const KeyView& key, const RowsFilter& filter) {
  const RecordPtr record = GetTable(verb, key);
  CheckFilter(verb, key, filter, record->meta->policy);
  const CutTurn turn = saver_.TakeTurn(verb);
  struct Released {
    ~Released() { saving.Release(); }
    Saving saving;
  } released{{verb, {}, Parts::kAll, core_.worker, core_.number, core_.options}};
  const Outcome outcome = CutFor(verb, record.get(), &released.saving);
  const auto& kept = *outcome.As<Outcome::Cut>();
  const CutTable cut{verb, record, kept.meta, kept.states};
  uint64_t version = UINT64_MAX;
  uint64_t latest = 0;
  for (const ChunkState& state : *cut.states) {
    version = std::min(version, state.row_version);
    latest = std::max(latest, state.row_version);
  }
  CheckSince(verb, key, filter, latest);
  const std::vector<int64_t> ids = ExportedIds(cut, filter);
  RowsExport made{MakeRows(ids, record->info.shape, record->info.dtype), version};
  ReadValues(cut, made.rows);
  return made;
}

// ---- import -------------------------------------------------------------------------------------

void Tables::Import(const std::string& verb, const KeyView& key, const Rows& rows) {
  const RecordPtr record = GetTable(verb, key);
  CheckRows(verb, key, &rows, {record->info.shape, record->info.dtype, record->info.row_count});
  core_.calls.WaitFor(rows.ids, Access::kRead);
  core_.calls.WaitFor(rows.values, Access::kRead);
  const NDArray packed_ids = rows.ids.Packed();
  const NDArray packed_values = rows.values.Packed();
  const std::span<const int64_t> ids = IdsOf(packed_ids);
  CheckIds(verb, key, ids, record->info.row_count);
  CheckEachOnce(verb, key, ids);
  saver_.NoteReplaced();
  const size_t at_once = std::max<size_t>(1, kBytesAtOnce / record->value_bytes);
  for (size_t first = 0; first < ids.size(); first += at_once) {
    const auto some = ids.subspan(first, std::min(at_once, ids.size() - first));
    const RowList list{
        some, static_cast<const std::byte*>(packed_values.data()) + first * record->value_bytes};
    PushSource source{.record = record};
    rows_.EncodeRows(verb, {&list, 1}, &source);
    std::vector<ChunkState> states(record->meta->buckets);
    for (uint32_t b = 0; b < states.size(); ++b) {
      states[b].by_rows = true;
      states[b].rows = source.encoded->PartOf(b).size / (sizeof(uint64_t) + record->value_bytes);
    }
    Operation::Restore import;
    import.states = std::make_shared<const std::vector<ChunkState>>(std::move(states));
    import.value = *std::move(source.encoded);
    import.extent = Operation::Restore::Extent::kOnlyRows;
    try {
      core_.calls.AwaitOutcome(verb, core_.calls.Make(std::move(import), verb, record.get()));
    } catch (const Error& error) {
      if (first == 0) throw;
      throw Fail(error.code(), "{}; the first {} rows have been imported", error.what(), first);
    }
  }
}

}  // namespace tkv
