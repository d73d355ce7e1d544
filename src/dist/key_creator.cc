#include "dist/key_creator.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
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

// ---- records ------------------------------------------------------------------------------------

KeyCreator::NewRecordPtr KeyCreator::NewRecord(std::string_view verb, const KeyView& key,
                                               KVStore::KeyInfo info, std::string_view mode) const {
  CheckMode(verb, key, mode);
  auto record = std::make_shared<KeyRecord>(KeyRecord{Key(key), "", std::move(info), mode_});
  try {
    record->name = CanonicalKey(core_.number, key);
  } catch (const Error& error) {
    throw Fail(error.code(), "{}: {}", verb, error.what());
  }
  if (mode == "sync") record->mode = KeyMeta::Mode::kSync;
  if (mode == "async") record->mode = KeyMeta::Mode::kAsync;
  return record;
}

KeyMeta KeyCreator::MetaOf(const KeyRecord& record) const {
  KeyMeta meta;
  meta.name = record.name;
  meta.dtype = record.info.dtype;
  meta.shape = record.info.shape;
  meta.mode = record.mode;
  if (record.mode == KeyMeta::Mode::kSync) {
    meta.staleness = static_cast<uint32_t>(core_.options.staleness);
  }
  meta.deterministic = core_.options.deterministic;
  return meta;
}

// Returns the layout of a new key with a value.  Call with the store's lock.
Layout KeyCreator::NewLayout() const {
  const bool is_whole =
      updater_.optimizer() != nullptr && NeedsWholeValue(updater_.optimizer()->program());
  return is_whole ? Layout::kWhole : Layout::kDense;
}

// Makes the record of a new key with a value.  Call with the store's lock.
KeyCreator::NewRecordPtr KeyCreator::NewValue(std::string_view verb, const InitItem& item,
                                              Layout layout) const {
  CheckMade(verb, item.key, item.value);
  const NDArray& value = *item.value;
  const bool is_on_gpu = value.context().kind == DeviceKind::kGpu;
  if (is_on_gpu) NamingKey(verb, item.key, [&] { CheckUsable(value.context()); });
  // Pulls find the value there.
  const Context context = is_on_gpu ? Context() : value.context();
  NewRecordPtr record =
      NewRecord(verb, item.key, {value.shape(), value.dtype(), context}, item.mode);
  if (layout == Layout::kWhole && value.bytes() > kPartBytesMax) {
    throw Fail(Code::kResourceExhausted,
               "{} {}: {} bytes, and a value that the program '{}' needs whole has at most {}",
               verb, item.key.ToString(), value.bytes(), updater_.optimizer()->program().name(),
               kPartBytesMax);
  }
  record->bytes.init_bytes = record->value_bytes = value.bytes();
  KeyMeta meta = MetaOf(*record);
  meta.layout = layout;
  record->meta = std::make_shared<const KeyMeta>(std::move(meta));
  return record;
}

// Makes the record of a new table.  Call with the store's lock.
KeyCreator::NewRecordPtr KeyCreator::NewTable(std::string_view verb, const RowsInitItem& item) {
  const RowPolicy policy = CheckTable(verb, item);
  const Optimizer* const optimizer =
      item.optimizer ? item.optimizer.get() : updater_.optimizer().get();
  if (optimizer != nullptr) CheckUpdatesRows(verb, item.key, *optimizer, Code::kInvalidArgument);
  KVStore::KeyInfo info{item.row_shape, item.dtype, Context::Cpu(), true, item.row_count};
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

// ---- operations ---------------------------------------------------------------------------------

Operation KeyCreator::InitOf(std::string_view verb, const KeyRecord& record, const NDArray& value) {
  const NDArray* const values[] = {&value};
  Operation init = core_.calls.Make(Operation::Init{record.meta, {}}, std::string(verb), &record);
  init.value()->bytes = MemoryOf(builder_.AllOnHost(verb, record.key.view(), values)[0]);
  return init;
}

// Returns the operation that creates a table.
//   rows  the first rows, or null
Operation KeyCreator::InitRowsOf(std::string_view verb, const NewRecordPtr& record,
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
  rows_.EncodeRows(verb, lists, &source);
  return core_.calls.Make(Operation::Init{record->meta, *source.encoded}, std::string(verb),
                          record.get());
}

// ---- creating -----------------------------------------------------------------------------------

void KeyCreator::Init(std::string_view verb, std::span<const InitItem> items) {
  std::vector<RowsInitItem> given;
  given.reserve(items.size());
  for (const InitItem& item : items) {
    CheckMade(verb, item.key, item.value);
    given.push_back({.key = item.key, .row_shape = {}, .mode = item.mode, .value = item.value});
  }
  InitRows(verb, given);
}

void KeyCreator::InitRows(std::string_view verb, std::span<const RowsInitItem> items) {
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

// Creates or finds keys, each by a call of its own.  If one fails, the keys that were made before
// stay.
void KeyCreator::LaunchInits(const std::string& verb, std::vector<Operation> inits,
                             const std::vector<NewRecordPtr>& records) {
  std::vector<CallPtr> calls;
  for (size_t i = 0; i < inits.size(); ++i) {
    calls.push_back(core_.calls.New(verb));
    calls.back()->sources.push_back(inits[i].value()->bytes);
    calls.back()->on_outcome = [made = records[i]](const Outcome& outcome) {
      if (const auto* const found = outcome.As<Outcome::Found>()) made->meta = found->meta;
    };
    std::vector<Operation> operations;
    operations.push_back(std::move(inits[i]));
    core_.worker->calls().Launch(calls.back(), std::move(operations));
  }
  std::exception_ptr error;
  for (size_t i = 0; i < calls.size(); ++i) {
    try {
      if (error) {
        core_.worker->calls().Abandon(calls[i]);
      }
      core_.calls.Await(calls[i]);
      if (core_.worker->rejoined()) ContinueRounds(*records[i]);
      const auto lock = core_.Lock(verb);
      core_.keys.Add(records[i]);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

// Continues the count of a key's rounds after those of earlier incarnations of this worker.
void KeyCreator::ContinueRounds(const KeyRecord& record) {
  core_.worker->Ask([&](const Client& client) {
    record.former_rounds = client.RoundOf(record.name) - client.BaseOf(record.name);
    record.former_step = client.FormerStepOf(record.name);
    record.last_step = record.former_step.number;
  });
  saver_.GoOnAfter(record.former_rounds, record.former_step.number);
}

}  // namespace tkv
