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

void DistStore::PushRows(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                         std::string_view verb) {
  AsWorker(Verb::kPush, verb, [&] {
    core_.calls.Tracked(transfers_.PushRows(std::string(verb), items, whole, false));
  });
}

Ticket DistStore::PushRowsAsync(std::span<const RowsPushItem> items,
                                std::span<const PushItem> whole, std::string_view verb) {
  return AsWorker(Verb::kPush, verb, [&] {
    return core_.calls.Tracked(transfers_.PushRows(std::string(verb), items, whole, true));
  });
}

// ---- pull ---------------------------------------------------------------------------------------

void DistStore::PullRows(std::span<const RowsPullItem> items, std::string_view verb) {
  core_.calls.Counted(Verb::kPull, verb, [&] {
    core_.calls.Await(transfers_.PullRows(std::string(verb), items, false));
  });
}

Ticket DistStore::PullRowsAsync(std::span<const RowsPullItem> items, std::string_view verb) {
  return core_.calls.Counted(Verb::kPull, verb, [&] {
    return core_.calls.Tracked(transfers_.PullRows(std::string(verb), items, true));
  });
}

}  // namespace tkv
