#include "dist/auto_save.h"

#include <utility>

#include "base/format.h"
#include "job/worker.h"
#include "options/save_interval.h"
#include "store/snapshots.h"
#include "tkv/error.h"

namespace tkv {
AutoSave::AutoSave(std::string folder, const std::string& every, Time now)
    : folder_(std::move(folder)), last_(now) {
  if (folder_.empty() && every.empty()) return;
  if (folder_.empty() || every.empty()) {
    throw Fail(Code::kInvalidArgument,
               "create: snapshots='{}', snapshot_every='{}': both are needed", folder_, every);
  }
  // An absolute path, so that the folder stays the same when the process changes its directory.
  folder_ = PlaceOf(folder_);
  const std::optional<SaveInterval> interval = SaveIntervalOf(every);
  if (!interval) {
    throw Fail(
        Code::kInvalidArgument,
        "create: snapshot_every='{}': a number of rounds, such as 100, or of seconds, such as "
        "30s, is needed",
        every);
  }
  rounds_ = interval->rounds;
  span_ = static_cast<Time>(interval->seconds) * kSecond;
}

std::shared_ptr<SavingStores> StoresSavingIn(Worker* worker, const std::string& folder,
                                             const std::string& every) {
  if (folder.empty() && every.empty()) return nullptr;
  const auto made = std::make_shared<SavingStores>(folder, every, NodeThread::Now());
  Worker::SavingStoresByFolder& all = worker->saving_stores();
  std::unique_lock lock(all.mutex);
  std::shared_ptr<SavingStores> stores =
      all.by_folder.emplace(made->when.folder(), made).first->second;
  // The mutex of those stores must not be taken within this one.
  lock.unlock();
  if (stores->every != every && stores->IsUnused()) {
    lock.lock();
    std::shared_ptr<SavingStores>& newest = all.by_folder[made->when.folder()];
    if (newest == stores) newest = made;
    stores = newest;
    lock.unlock();
  }
  if (stores->every != every) {
    throw Fail(Code::kInvalidArgument,
               "create: snapshot_every='{}': another store of this process saves into '{}' every "
               "'{}'; give all of them the same",
               every, folder, stores->every);
  }
  return stores;
}

}  // namespace tkv
