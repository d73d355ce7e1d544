#include "restore.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
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

std::vector<std::string> SnapshotsIn(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_number = name.find_first_not_of("0123456789") == std::string::npos;
    std::error_code absent;
    if (is_number && fs::exists(entry->path() / kIndexName, absent)) names.push_back(name);
  }
  // Numbers have six digits at least, and more only if they need them.
  std::ranges::sort(names, [](const std::string& one, const std::string& other) {
    return std::pair(one.size(), one) < std::pair(other.size(), other);
  });
  return names;
}

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
