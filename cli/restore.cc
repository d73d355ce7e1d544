#include "restore.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tkv/config.h"
#include "tkv/error.h"
#include "tkv/job.h"
#include "tkv/kvstore.h"

namespace tkv::cli {
namespace {

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
    std::fputs(kRestored, stdout);
    std::fflush(stdout);
    AwaitEndOfLife(*stores[0]);
    std::_Exit(0);  // without leaving the job, so that the rank continues
  } catch (const Error& error) {
    if (!IsOfJob(error.code())) throw;
    std::fprintf(stderr, "tkv: %s\n", error.what());
    return kRestorerIsLost;
  }
}

}  // namespace tkv::cli
