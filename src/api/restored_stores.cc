// Restores the stores of a job from a snapshot, and lists how often its keys were updated.

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "base/format.h"
#include "checkpoint/snapshot.h"
#include "dist/dist_store.h"
#include "tkv/job.h"
#include "tkv/kvstore.h"

namespace tkv {

std::vector<std::unique_ptr<KVStore>> RestoreStores(const std::string& path,
                                                    const StoreOptions& options) {
  const checkpoint::Reader reader(path);
  const std::set<uint32_t> numbers = reader.stores();
  std::vector<std::unique_ptr<KVStore>> stores;
  const auto make = [&] {
    StoreOptions of_store = options;
    for (const checkpoint::SavedKey& key : reader.keys()) {
      if (key.store != stores.size()) continue;
      of_store.deterministic |= key.deterministic;
      // The launcher's option counts for scripts that give none, and for snapshots of old builds.
      if (options.staleness > 0) continue;
      of_store.staleness = std::max(of_store.staleness, static_cast<int>(key.staleness));
    }
    stores.push_back(KVStore::Create("dist_sync", of_store));
  };
  constexpr uint32_t kStoresMax = 1 << 16;
  if (!numbers.empty() && *numbers.rbegin() >= kStoresMax) {
    throw Fail(Code::kDataLoss, "{}: keys of store {}, and a job has fewer than {}", path,
               *numbers.rbegin(), kStoresMax);
  }
  make();
  for (const uint32_t number : numbers) {
    while (stores.size() <= number) make();
    const std::string of_store = path + "/store-" + std::to_string(number);
    stores[number]->Restore(numbers.size() > 1 ? of_store : path);
  }
  if (auto* const first = dynamic_cast<DistStore*>(stores[0].get())) first->GoOnFromHere();
  return stores;
}

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
      checkpoint::Reader::OfStore(path, distributed != nullptr ? distributed->number() : 0);
  std::vector<SavedUpdates> all;
  for (const checkpoint::SavedKey& key : reader.keys()) {
    if (key.is_of_updater) continue;
    all.push_back({key.key, *std::max_element(key.updates.begin(), key.updates.end())});
  }
  return all;
}

}  // namespace tkv
