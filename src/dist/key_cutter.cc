#include "dist/key_cutter.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/format.h"
#include "dist/snapshot_keys.h"
#include "store/checks.h"

namespace tkv {

bool HasAsyncKeys(std::span<const SavedStore> stores) {
  const auto is_async = [](const RecordPtr& record) {
    return record->mode == KeyMeta::Mode::kAsync;
  };
  return std::ranges::any_of(stores, [&](const SavedStore& store) {
    return std::ranges::any_of(store.records, is_async);
  });
}

// Makes the servers keep a version of these keys at their present rounds.  Adds the kept versions
// to `outcomes`.
void KeyCutter::CutKeys(const SaveRequest& request, std::span<const RecordPtr> records,
                        Outcomes* outcomes) {
  if (records.empty()) return;
  const CallPtr call = core_.calls.New(request.verb);
  const auto of_operations = std::make_shared<std::map<OpId, Outcome>>();
  call->on_outcome = [of_operations](const Outcome& outcome) {
    of_operations->emplace(outcome.op, outcome);
  };
  std::vector<Operation> operations;
  operations.reserve(records.size());
  for (const RecordPtr& record : records) {
    operations.push_back(core_.calls.Make(Operation::Cut{}, request.verb, record.get()));
  }
  core_.worker->calls().Launch(call, std::move(operations));
  core_.calls.Await(call, request.patience);
  for (size_t i = 0; i < records.size(); ++i) {
    outcomes->emplace(records[i], of_operations->at(call->ops[i]));
  }
}

// Cuts the keys of all stores, and returns the kept versions.
//
// Other workers go on pushing to asynchronous keys.  A user may store the progress of a script in a
// store that was created later.  Later stores are cut first, so that the saved progress is never
// ahead of the saved values.
KeyCutter::Outcomes KeyCutter::CutStores(const SaveRequest& request) {
  Outcomes outcomes;
  std::vector<RecordPtr> synchronous;
  for (auto store = request.stores.rbegin(); store != request.stores.rend(); ++store) {
    if (HasAsyncKeys({&*store, 1})) {
      CutKeys(request, store->records, &outcomes);
    } else {
      synchronous.insert(synchronous.end(), store->records.begin(), store->records.end());
    }
  }
  CutKeys(request, synchronous, &outcomes);
  return outcomes;
}

// Returns the entry of a key in the snapshot.
SavedKey KeyCutter::DescribeCut(const SaveRequest& request, const KeyRecord& record,
                                const Outcome& outcome) {
  const auto& cut = *outcome.As<Outcome::Cut>();
  const uint64_t round = core_.worker->Ask(&Client::BaseOf, record.name) + outcome.round;
  SavedKey key = Named(request.verb.c_str(), [&] {
    return DescribeKey(record.key, *cut.meta, *cut.states, round, request.parts);
  });
  if (record.mode == KeyMeta::Mode::kSync) key.step = std::atomic_ref(record.last_step).load();
  return key;
}

std::shared_ptr<Saving> KeyCutter::Cut(const SaveRequest& request) {
  bool may_lack_states = request.parts == Parts::kAll;  // a save of states alone needs some
  {
    const auto lock = core_.Lock(request.verb);
    may_lack_states = may_lack_states || updater_.optimizer() != nullptr;
  }
  if (!core_.worker->Ask(&Client::IsSender)) return nullptr;
  auto saving = std::make_shared<Saving>(request.verb, request.path, request.parts, core_.worker,
                                         core_.number, core_.options);
  for (const SavedStore& store : request.stores) saving->AddStore(store.number);
  const auto is_empty = [](const SavedStore& store) { return store.records.empty(); };
  if (std::ranges::all_of(request.stores, is_empty)) return saving;
  try {
    const Outcomes outcomes = CutStores(request);
    for (const SavedStore& store : request.stores) {
      for (const RecordPtr& record : store.records) {
        const Outcome& outcome = outcomes.at(record);
        const auto& cut = *outcome.As<Outcome::Cut>();
        SavedKey key = DescribeCut(request, *record, outcome);
        key.store = store.number;
        // Another rank may have set the optimizer, or the key may have its own.
        may_lack_states = may_lack_states || !key.program.text.empty() || !key.own.text.empty();
        saving->Add(std::move(key), {record->name, cut.meta, cut.states});
      }
    }
    Named(request.verb.c_str(), [&] { CheckHasStates(may_lack_states); });
  } catch (...) {
    saving->Release();
    throw;
  }
  return saving;
}

}  // namespace tkv
