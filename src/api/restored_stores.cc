// Restores the stores of a job from a snapshot, and lists how often its keys were updated.

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/format.h"
#include "checkpoint/search.h"
#include "dist/dist_store.h"
#include "tkv/job.h"
#include "tkv/kvstore.h"

namespace tkv {

namespace {

// Returns the options of a store whose keys are at `path`: its bits and its staleness are those of
// the snapshot.  The launcher's staleness counts for scripts that give none, and for snapshots of
// old builds.
StoreOptions OptionsOf(const std::string& path, uint32_t number, const StoreOptions& options) {
  StoreOptions of_store = options;
  const auto reader = checkpoint::FindStore(path, number);
  if (!reader) return of_store;
  for (const checkpoint::SavedKey& key : reader->keys()) {
    of_store.deterministic |= key.deterministic;
    if (options.staleness > 0) continue;
    of_store.staleness = std::max(of_store.staleness, static_cast<int>(key.staleness));
  }
  return of_store;
}

}  // namespace

std::vector<std::unique_ptr<KVStore>> RestoreStores(const std::string& path,
                                                    const StoreOptions& options) {
  std::vector<std::string> unread;  // the errors of older snapshots
  const std::set<uint32_t> numbers =
      checkpoint::StoresAt(path, [&](const Error& error) { unread.emplace_back(error.what()); });
  constexpr uint32_t kStoresMax = 1 << 16;
  const uint32_t last = numbers.empty() ? 0 : *numbers.rbegin();
  if (last >= kStoresMax) {
    throw Fail(Code::kDataLoss, "{}: keys of store {}, and a job has fewer than {}", path, last,
               kStoresMax);
  }
  std::vector<std::unique_ptr<KVStore>> stores;
  while (stores.size() <= last) {
    const auto number = static_cast<uint32_t>(stores.size());
    if (!numbers.contains(number)) {
      stores.push_back(KVStore::Create("dist_sync", options));
      continue;
    }
    stores.push_back(KVStore::Create("dist_sync", OptionsOf(path, number, options)));
    stores.back()->Restore(path);
  }
  if (auto* const first = dynamic_cast<DistStore*>(stores[0].get())) first->GoOnFromHere();
  if (options.log && stores[0]->rank() == 0) {
    for (const std::string& error : unread) {
      options.log(
          3,
          Format("an older snapshot is not read, and a store that no other one has begins anew: {}",
                 error));
    }
  }
  return stores;
}

std::set<uint32_t> StoresIn(const std::string& path) { return checkpoint::Open(path).stores(); }

void AwaitEndOfLife(const KVStore& store) {
  constexpr std::chrono::milliseconds kPollInterval(50);
  const auto* const distributed = dynamic_cast<const DistStore*>(&store);
  while (distributed != nullptr && !distributed->HasLostItsPlace()) {
    std::this_thread::sleep_for(kPollInterval);
  }
}

std::vector<SavedUpdates> UpdatesIn(const std::string& path, const KVStore& store) {
  const auto* const distributed = dynamic_cast<const DistStore*>(&store);
  const checkpoint::Reader reader =
      checkpoint::OpenStore(path, distributed != nullptr ? distributed->number() : 0);
  std::vector<SavedUpdates> all;
  for (const checkpoint::SavedKey& key : reader.keys()) {
    if (key.is_of_updater) continue;
    all.push_back({key.key, *std::max_element(key.updates.begin(), key.updates.end())});
  }
  return all;
}

}  // namespace tkv
