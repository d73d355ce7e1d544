// Rows in a distributed store.  Outgoing rows are sorted into the buckets of their keys, incoming
// rows into the user's order.

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>

#include "dist/dist_store.h"
#include "rows/checked_policy.h"
#include "rows/initial_row.h"
#include "store/checks.h"
#include "update/program_body.h"

namespace tkv {
namespace {

constexpr uint32_t kBucketsPerServer = 4;
constexpr size_t kInitBytesOfBucket = size_t{64} << 20;

using Places = boost::unordered_flat_map<const void*, size_t>;

void CheckRowTotal(std::string_view verb, const KeyView& key, size_t rows) {
  if (rows < UINT32_MAX) return;
  throw Fail(Code::kInvalidArgument, "{} {}: {} rows in one call, at most 2^32 - 2 are possible",
             verb, key.ToString(), rows);
}

// Throws errors that servers would report for a new table, before anything is sent.
//   returns  the policy in the form that servers have
RowPolicy CheckTable(std::string_view verb, const RowsInitItem& item) {
  CheckNewRows(verb, item);
  const auto elements = static_cast<size_t>(item.row_shape.size());
  return NamingKey(verb, item.key, [&] {
    const InitialRow initial(item.dtype, elements, item.initializer);
    return CheckedPolicy(item.policy, item.dtype);
  });
}

uint32_t BucketsFor(int servers, size_t init_bytes) {
  const size_t wanted =
      std::max<size_t>(static_cast<size_t>(servers) * kBucketsPerServer,
                       (init_bytes + kInitBytesOfBucket - 1) / kInitBytesOfBucket);
  return static_cast<uint32_t>(std::min<size_t>(wanted, KeyMeta::kBucketsMax));
}

}  // namespace

// ---- init ---------------------------------------------------------------------------------------

void DistStore::InitRows(std::span<const RowsInitItem> items, std::string_view verb) {
  AsWorker(Verb::kInit, verb, [&] { InitRowsAs(verb, items); });
}

// Makes the record of a new table.  Call with the store's lock.
DistStore::NewRecordPtr DistStore::NewTable(std::string_view verb, const RowsInitItem& item) {
  const RowPolicy policy = CheckTable(verb, item);
  const Optimizer* const optimizer =
      item.optimizer ? item.optimizer.get() : updater_.optimizer().get();
  if (optimizer != nullptr) CheckUpdatesRows(verb, item.key, *optimizer, Code::kInvalidArgument);
  KeyInfo info{item.row_shape, item.dtype, Context::Cpu(), true, item.row_count};
  NewRecordPtr record = NewRecord(verb, item.key, std::move(info), item.mode);
  record->own = item.optimizer;
  if (record->own) updater_.Check(verb, *record);
  record->value_bytes = static_cast<size_t>(item.row_shape.size()) * ItemSize(item.dtype);
  if (item.rows != nullptr) record->bytes.init_bytes = item.rows->values.bytes();
  KeyMeta meta = MetaOf(*record);
  meta.layout = Layout::kRows;
  meta.row_count = item.row_count;
  meta.buckets = BucketsFor(core_.worker->servers(), record->bytes.init_bytes);
  meta.initializer = item.initializer;
  meta.policy = policy;
  if (item.optimizer != nullptr) meta.own = SpecOf(*item.optimizer);
  record->meta = std::make_shared<const KeyMeta>(std::move(meta));
  return record;
}

// Returns the operation that creates a table.
//   rows  the first rows, or null
Operation DistStore::InitRowsOf(std::string_view verb, const NewRecordPtr& record,
                                const Rows* rows) {
  const KeyView key = record->key.view();
  PushSource source{.record = record};
  NDArray ids;
  NDArray values;
  std::vector<RowList> lists;
  if (rows != nullptr) {
    core_.calls.WaitFor(rows->ids, Access::kRead);
    core_.calls.WaitFor(rows->values, Access::kRead);
    ids = rows->ids.Packed();
    values = rows->values.Packed();
    CheckIds(verb, key, IdsOf(ids), record->info.row_count);
    CheckEachOnce(verb, key, IdsOf(ids));
    lists.push_back({IdsOf(ids), values.data()});
  }
  row_encoder_.EncodeRows(verb, lists, &source);
  return core_.calls.Make(Operation::Init{record->meta, *source.encoded}, std::string(verb),
                          record.get());
}

void DistStore::InitRowsAs(std::string_view verb, std::span<const RowsInitItem> items) {
  const std::vector<KeyView> keys = KeysOf(items);
  core_.calls.RaiseUnseen(verb, keys);
  std::vector<NewRecordPtr> records;
  {
    const auto lock = core_.Lock(verb);
    core_.keys.CheckNew(verb, keys);
    for (const RowsInitItem& item : items) {
      records.push_back(item.value == nullptr
                            ? NewTable(verb, item)
                            : NewValue(verb, {item.key, item.value, item.mode}, NewLayout()));
    }
  }
  // All operations are made before the first one is launched.
  std::vector<Operation> inits;
  inits.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    inits.push_back(items[i].value == nullptr ? InitRowsOf(verb, records[i], items[i].rows)
                                              : InitOf(verb, *records[i], *items[i].value));
  }
  LaunchInits(std::string(verb), std::move(inits), records);
}

// ---- push ---------------------------------------------------------------------------------------

std::vector<PushSource> DistStore::GatherRowSources(std::string_view verb,
                                                    std::span<const RowsPushItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<PushSource> sources;
  std::vector<std::vector<const Rows*>> values;
  Places places;
  {
    const auto lock = core_.Lock(verb);
    for (const RowsPushItem& item : items) {
      const RecordPtr record = core_.keys.Get(verb, item.key);
      const RowGeometry geometry = GeometryOf(verb, *record);
      if (item.values.empty()) {
        throw Fail(Code::kInvalidArgument, "{} {}: the list of values is empty", verb,
                   item.key.ToString());
      }
      for (const Rows* rows : item.values) CheckRows(verb, item.key, rows, geometry);
      const auto [place, is_new] = places.emplace(record.get(), sources.size());
      if (is_new) {
        updater_.Check(verb, *record);
        sources.push_back({.record = record, .priority = item.priority});
        values.emplace_back();
        updater_.AddParams(item.key, &sources.back());
      }
      PushSource& source = sources[place->second];
      source.priority = std::max(source.priority, item.priority);
      for (const Rows* rows : item.values) {
        values[place->second].push_back(rows);
        source.bytes += rows->values.bytes();
      }
    }
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    PushSource& source = sources[i];
    const KeyView key = source.record->key.view();
    const RowGeometry geometry = GeometryOf(verb, *source.record);
    std::vector<NDArray> packed;
    std::vector<RowList> lists;
    size_t total = 0;
    packed.reserve(2 * values[i].size());
    lists.reserve(values[i].size());
    for (const Rows* value : values[i]) {
      core_.calls.WaitFor(value->ids, Access::kRead);
      core_.calls.WaitFor(value->values, Access::kRead);
      packed.push_back(value->ids.Packed());
      const auto some = IdsOf(packed.back());
      packed.push_back(value->values.Packed());
      CheckIds(verb, key, some, geometry.row_count);
      lists.push_back({some, packed.back().data()});
      total += some.size();
    }
    CheckRowTotal(verb, key, total);
    source.values = values[i].size();
    if (source.record->info.by_rows) {
      row_encoder_.EncodeRows(verb, lists, &source);
    } else {
      row_encoder_.EncodeRuns(verb, lists, &source);
    }
  }
  return sources;
}

// Throws if a key of the call has both rows and whole values.
void DistStore::CheckNoneIsBoth(std::string_view verb, std::span<const PushSource> sources,
                                std::span<const PushItem> whole) const {
  Places with_rows;
  for (const PushSource& source : sources) with_rows.emplace(source.record.get(), 0);
  const auto lock = core_.Lock(verb);
  for (const PushItem& item : whole) {
    if (!with_rows.contains(core_.keys.Get(verb, item.key).get())) continue;
    throw Fail(Code::kInvalidArgument,
               "{} {}: the call pushes rows and a whole array to it; use one of them", verb,
               item.key.ToString());
  }
}

CallPtr DistStore::PushRowsAs(const std::string& verb, std::span<const RowsPushItem> items,
                              std::span<const PushItem> whole, bool until_done) {
  std::vector<KeyView> keys = KeysOf(items);
  for (const PushItem& item : whole) keys.push_back(item.key);
  core_.calls.RaiseUnseen(verb, keys);
  saver_.SaveIfDue(keys, 0);
  std::vector<PushSource> sources;
  if (!items.empty() || whole.empty()) sources = GatherRowSources(verb, items);
  if (!whole.empty()) {
    CheckNoneIsBoth(verb, sources, whole);
    for (PushSource& other : GatherSources(verb, whole)) sources.push_back(std::move(other));
  }
  return StartPushes(verb, sources, until_done);
}

void DistStore::PushRows(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                         std::string_view verb) {
  AsWorker(Verb::kPush, verb,
           [&] { core_.calls.Tracked(PushRowsAs(std::string(verb), items, whole, false)); });
}

Ticket DistStore::PushRowsAsync(std::span<const RowsPushItem> items,
                                std::span<const PushItem> whole, std::string_view verb) {
  return AsWorker(Verb::kPush, verb, [&] {
    return core_.calls.Tracked(PushRowsAs(std::string(verb), items, whole, true));
  });
}

// ---- pull ---------------------------------------------------------------------------------------

std::vector<PullTarget> DistStore::GatherRowTargets(std::string_view verb,
                                                    std::span<const RowsPullItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<PullTarget> targets;
  std::vector<std::vector<const RowsPullItem*>> readings;
  Places places;
  {
    const auto lock = core_.Lock(verb);
    for (const RowsPullItem& item : items) {
      const RecordPtr record = core_.keys.Get(verb, item.key);
      CheckByRows(verb, item.key, record->info.by_rows);
      CheckRowsOut(verb, item, GeometryOf(verb, *record));
      const auto [place, is_new] = places.emplace(record.get(), targets.size());
      if (is_new) {
        targets.push_back({.record = record, .priority = item.priority});
        readings.emplace_back();
      }
      PullTarget& target = targets[place->second];
      target.priority = std::max(target.priority, item.priority);
      target.bytes += item.out->bytes();
      readings[place->second].push_back(&item);
    }
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    PullTarget& target = targets[i];
    std::vector<int64_t> ids;
    for (const RowsPullItem* reading : readings[i]) {
      core_.calls.WaitFor(*reading->ids, Access::kRead);
      core_.calls.WaitFor(*reading->out, Access::kWrite);
      const NDArray packed = reading->ids->Packed();
      const auto some = IdsOf(packed);
      CheckIds(verb, target.record->key.view(), some, target.record->info.row_count);
      ids.insert(ids.end(), some.begin(), some.end());
      target.outs.push_back(*reading->out);
      target.out_ends.push_back(ids.size());
    }
    CheckRowTotal(verb, target.record->key.view(), ids.size());
    row_encoder_.AskForRows(ids, &target);
  }
  return targets;
}

CallPtr DistStore::PullRowsAs(const std::string& verb, std::span<const RowsPullItem> items,
                              bool is_async) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  core_.calls.RaiseUnseen(verb, KeysOf(items));
  return StartPulls(verb, GatherRowTargets(verb, items), is_async);
}

void DistStore::PullRows(std::span<const RowsPullItem> items, std::string_view verb) {
  core_.calls.Counted(Verb::kPull, verb,
                      [&] { core_.calls.Await(PullRowsAs(std::string(verb), items, false)); });
}

Ticket DistStore::PullRowsAsync(std::span<const RowsPullItem> items, std::string_view verb) {
  return core_.calls.Counted(Verb::kPull, verb, [&] {
    return core_.calls.Tracked(PullRowsAs(std::string(verb), items, true));
  });
}

}  // namespace tkv
