#include "restore.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tkv/config.h"
#include "tkv/error.h"
#include "tkv/job.h"
#include "tkv/kvstore.h"

namespace tkv::cli {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};

// Waits until the rank has a new incarnation; the answer to a pull then is an error.
void StayUntilReplaced(KVStore* store) {
  const std::vector<Key> keys = store->Keys();
  const auto size_of = [store](const Key& key) { return store->Describe(key.view()).shape.size(); };
  const auto smallest = std::min_element(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    return size_of(a) < size_of(b);
  });
  if (smallest == keys.end()) return;
  const KVStore::KeyInfo info = store->Describe(smallest->view());
  std::vector<int64_t> dims(info.shape.begin(), info.shape.end());
  if (info.by_rows) dims.insert(dims.begin(), 1);
  const NDArray out = NDArray::Empty(Shape(dims), info.dtype);
  const int64_t first_id = 0;
  const NDArray ids = NDArray::FromBytes(&first_id, {1}, DType::kI64);
  const RowsPullItem row{smallest->view(), &ids, &out};
  try {
    for (;; std::this_thread::sleep_for(kPollInterval)) {
      if (info.by_rows) {
        store->PullRows({&row, 1});
      } else {
        store->Pull(smallest->view(), out);
      }
    }
  } catch (const Error& error) {
    static_cast<void>(error);  // this incarnation is over, or the job
  }
}

// Returns true if another try may succeed.
bool IsOfJob(Code code) {
  return code == Code::kUnavailable || code == Code::kAborted || code == Code::kDeadlineExceeded;
}

}  // namespace

int RunRestorer(const std::string& path) {
  try {
    StoreOptions options = OptionsFromEnvironment();
    options.snapshots.clear();
    options.snapshot_every.clear();
    const std::vector<std::unique_ptr<KVStore>> stores = RestoreStores(path, options);
    stores[0]->Barrier();
    std::fputs(kRestored, stdout);
    std::fflush(stdout);
    const auto has_keys = [](const auto& store) { return store->size() > 0; };
    const auto store = std::find_if(stores.begin(), stores.end(), has_keys);
    if (store != stores.end()) StayUntilReplaced(store->get());
    std::_Exit(0);  // without leaving the job, so that the rank continues
  } catch (const Error& error) {
    if (!IsOfJob(error.code())) throw;
    std::fprintf(stderr, "tkv: %s\n", error.what());
    return kRestorerIsLost;
  }
}

}  // namespace tkv::cli
