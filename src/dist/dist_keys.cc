// The keys of a distributed store: init, broadcast, delete.

#include <algorithm>

#include "dist/dist_store.h"
#include "store/checks.h"
#include "update/program_body.h"

namespace tkv {

DistStore::NewRecordPtr DistStore::NewRecord(std::string_view verb, const KeyView& key,
                                             KeyInfo info, std::string_view mode) const {
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

KeyMeta DistStore::MetaOf(const KeyRecord& record) const {
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
Layout DistStore::NewLayout() const {
  const bool is_whole =
      updater_.optimizer() != nullptr && NeedsWholeValue(updater_.optimizer()->program());
  return is_whole ? Layout::kWhole : Layout::kDense;
}

// Makes the record of a new key with a value.  Call with the store's lock.
DistStore::NewRecordPtr DistStore::NewValue(std::string_view verb, const InitItem& item,
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

Operation DistStore::InitOf(std::string_view verb, const KeyRecord& record, const NDArray& value) {
  const NDArray* const values[] = {&value};
  Operation init = core_.calls.Make(Operation::Init{record.meta, {}}, std::string(verb), &record);
  init.value()->bytes = MemoryOf(builder_.AllOnHost(verb, record.key.view(), values)[0]);
  return init;
}

void DistStore::InitAs(std::string_view verb, std::span<const InitItem> items) {
  std::vector<RowsInitItem> given;
  given.reserve(items.size());
  for (const InitItem& item : items) {
    CheckMade(verb, item.key, item.value);
    given.push_back({.key = item.key, .row_shape = {}, .mode = item.mode, .value = item.value});
  }
  InitRowsAs(verb, given);
}

// Creates or finds keys, each by a call of its own.  If one fails, the keys that were made before
// stay.
void DistStore::LaunchInits(const std::string& verb, std::vector<Operation> inits,
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
    core_.worker->Launch(calls.back(), std::move(operations));
  }
  std::exception_ptr error;
  for (size_t i = 0; i < calls.size(); ++i) {
    try {
      if (error) {
        core_.worker->GiveUp(calls[i]);
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
void DistStore::ContinueRounds(const KeyRecord& record) {
  core_.worker->Ask([&](const Client& client) {
    record.former_rounds = client.RoundOf(record.name) - client.BaseOf(record.name);
    record.former_step = client.FormerStepOf(record.name);
    record.last_step = record.former_step.number;
  });
  saver_.GoOnAfter(record.former_rounds, record.former_step.number);
}

void DistStore::Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) {
  AsWorker(Verb::kBroadcast, "broadcast", [&] {
    CheckBroadcast(items, outs);
    InitAs("broadcast", items);
    core_.calls.Await(transfers_.Pull("broadcast", outs, false));
  });
}

void DistStore::Delete(const KeyView& key) {
  AsWorker(Verb::kDelete, "delete", [&] { Erase(key); });
}

void DistStore::Erase(const KeyView& key) {
  core_.calls.RaiseUnseen("delete", {&key, 1});
  RecordPtr record;
  {
    const auto lock = core_.Lock("delete");
    record = core_.keys.Get("delete", key);
  }
  const CallPtr call =
      core_.calls.Start("delete", core_.calls.Make(Operation::Delete{}, "delete", record.get()));
  core_.calls.Await(call);
  const auto lock = core_.Lock("delete");
  core_.keys.Erase(key);
  saver_.NoteErased(record->rounds());
  deleted_.rounds += call->round();
  deleted_.bytes += record->bytes;
}

uint64_t DistStore::Round(const KeyView& key) const {
  RecordPtr record;
  {
    const auto lock = core_.Lock("round");
    record = core_.keys.Get("round", key);
  }
  return core_.worker->Ask(&Client::PushedOf, record->name);
}

PushStep DistStore::FormerStep(const KeyView& key) const {
  const auto lock = core_.Lock("round");
  return core_.keys.Get("round", key)->former_step;
}

}  // namespace tkv
