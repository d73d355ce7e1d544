// The keys of a distributed store: init, broadcast, delete.

#include <algorithm>

#include "runtime/dist_store.h"
#include "store/checks.h"
#include "update/program_body.h"

namespace tkv {

void DistStore::InitAs(std::string_view verb, std::span<const InitItem> items) {
  RaiseUnseen(verb, KeysOf(items));
  std::vector<std::shared_ptr<KeyRecord>> records;
  Layout layout = Layout::kDense;
  {
    const auto lock = Lock(verb);
    CheckNewKeys(verb, items,
                 order_.empty() ? std::nullopt : std::optional(order_.front().is_string()),
                 [&](const KeyView& key) { return keys_.contains(key); });
    if (optimizer_ != nullptr && NeedsWholeValue(optimizer_->program())) layout = Layout::kWhole;
    for (const InitItem& item : items) {
      if (!item.mode.empty() && item.mode != "sync" && item.mode != "async") {
        throw Fail(Code::kInvalidArgument, "{} {}: mode '{}'; there are sync and async", verb,
                   item.key.ToString(), item.mode);
      }
      const NDArray& value = *item.value;
      if (layout == Layout::kWhole && value.bytes() > kPartBytesMax) {
        throw Fail(Code::kResourceExhausted,
                   "{} {}: {} bytes, and a value that the program '{}' needs whole has at most {}",
                   verb, item.key.ToString(), value.bytes(), optimizer_->program().name(),
                   kPartBytesMax);
      }
      records.push_back(std::make_shared<KeyRecord>(
          KeyRecord{Key(item.key), "", {value.shape(), value.dtype(), value.context()}, mode_}));
      records.back()->bytes.init_bytes = records.back()->value_bytes = value.bytes();
      try {
        records.back()->name = CanonicalKey(number_, item.key);
      } catch (const Error& error) {
        throw Fail(error.code(), "{}: {}", verb, error.what());
      }
      if (item.mode == "sync") records.back()->mode = KeyMeta::Mode::kSync;
      if (item.mode == "async") records.back()->mode = KeyMeta::Mode::kAsync;
    }
  }
  std::vector<NDArray> values;  // all of them before the first key is under way
  for (const InitItem& item : items) {
    WaitFor(*item.value, Access::kRead);
    values.push_back(item.value->Packed());
  }
  std::vector<CallPtr> calls;
  for (size_t i = 0; i < items.size(); ++i) {
    const KeyRecord& record = *records[i];
    Operation init = Make(Operation::Kind::kInit, std::string(verb), &record);
    KeyMeta meta;
    meta.name = record.name;
    meta.dtype = record.info.dtype;
    meta.shape = record.info.shape;
    meta.mode = record.mode;
    meta.layout = layout;
    if (record.mode == KeyMeta::Mode::kSync) {
      meta.staleness = static_cast<uint32_t>(options_.staleness);
    }
    meta.deterministic = options_.deterministic;
    init.meta = std::make_shared<const KeyMeta>(std::move(meta));
    init.value.bytes = MemoryOf(values[i]);
    calls.push_back(NewCall(std::string(verb)));
    calls.back()->sources.push_back(MemoryOf(values[i]));
    calls.back()->on_outcome = [made = records[i]](const Outcome& outcome) {
      if (outcome.meta != nullptr) made->meta = outcome.meta;
    };
    std::vector<Operation> operations;
    operations.push_back(std::move(init));
    worker_->Launch(calls.back(), std::move(operations));
  }
  std::exception_ptr error;
  for (size_t i = 0; i < calls.size(); ++i) {
    try {
      if (error) {
        worker_->GiveUp(calls[i]);
      }
      Await(calls[i], options_.patience);
      const auto lock = Lock(verb);
      keys_.emplace(records[i]->key, records[i]);
      order_.push_back(records[i]->key);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void DistStore::Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) {
  Counted(Verb::kBroadcast, [&] {
    CheckBroadcast(items, outs);
    InitAs("broadcast", items);
    Await(StartPulls("broadcast", outs, false), options_.patience);
  });
}

void DistStore::Delete(const KeyView& key) {
  Counted(Verb::kDelete, [&] { Erase(key); });
}

void DistStore::Erase(const KeyView& key) {
  RaiseUnseen("delete", {&key, 1});
  RecordPtr record;
  {
    const auto lock = Lock("delete");
    record = Get("delete", key);
  }
  const CallPtr call = NewCall("delete");
  std::vector<Operation> operations;
  operations.push_back(Make(Operation::Kind::kDelete, "delete", record.get()));
  worker_->Launch(call, std::move(operations));
  Await(call, options_.patience);
  const auto lock = Lock("delete");
  keys_.erase(record->key);
  std::erase(order_, record->key);
  deleted_.rounds += call->round();
  deleted_.bytes += record->bytes;
}

uint64_t DistStore::Round(const KeyView& key) const {
  RecordPtr record;
  {
    const auto lock = Lock("round");
    record = Get("round", key);
  }
  return worker_->Run([&](ClientNode& node, Time) { return node.client().PushedOf(record->name); });
}

}  // namespace tkv
