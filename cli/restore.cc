#include "restore.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "tkv/config.h"
#include "tkv/error.h"
#include "tkv/job.h"
#include "tkv/kvstore.h"

namespace tkv::cli {
namespace {

namespace fs = std::filesystem;

// Returns the stores that a snapshot has, or nothing if it cannot be read.
std::optional<std::set<uint32_t>> StoresIfRead(const fs::path& snapshot) {
  try {
    return StoresIn(snapshot.string());
  } catch (const Error& error) {
    static_cast<void>(error);  // damaged, or of a newer version
    return std::nullopt;
  }
}

// Returns the stores that any of these snapshots has.
std::set<uint32_t> StoresOf(const fs::path& folder, const std::vector<std::string>& names) {
  std::set<uint32_t> all;
  for (const std::string& name : names) {
    if (auto stores = StoresIfRead(folder / name)) all.merge(*stores);
  }
  return all;
}

// Prints the errors that a store logs, even if the user asks for no log.
void PrintError(int level, const std::string& text) {
  constexpr int kError = 3;
  if (level >= kError) std::fprintf(stderr, "tkv: %s\n", text.c_str());
}

// Returns true if another try may succeed.
bool IsOfJob(Code code) {
  return code == Code::kUnavailable || code == Code::kAborted || code == Code::kDeadlineExceeded;
}

}  // namespace

std::vector<std::string> SnapshotsIn(const std::string& folder) {
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

std::string AdviceOnDamage(const std::string& path, const std::string& snapshots) {
  std::error_code absent;
  const bool is_one = fs::exists(fs::path(path) / kIndexName, absent);
  const fs::path folder = is_one ? fs::path(path).parent_path() : fs::path(path);
  std::vector<std::string> names = SnapshotsIn(folder.string());
  if (is_one) {  // it is the last one
    const std::string name = fs::path(path).filename().string();
    names.erase(std::ranges::find(names, name), names.end());
    names.push_back(name);
  }
  // Each store takes the newest snapshot that has it, and that of any store may be the damaged one.
  // A snapshot without some of the stores would begin those anew.
  const std::set<uint32_t> all = StoresOf(folder, names);
  // A job that goes on from one snapshot may not save beside it: it would go on from newer ones.
  const std::string how = std::string(folder == snapshots ? " --snapshots OTHER" : "") +
                          "` goes on from the snapshot before it";
  while (names.size() > 1) {
    names.pop_back();
    const fs::path older = folder / names.back();
    const auto stores = StoresIfRead(older);
    if (stores && *stores == all) return "; `--restore " + older.string() + how;
  }
  return {};
}

int RunRestorer(const std::string& path) {
  // Schedulers send these signals to every process, and a restorer has no script that handles them.
  for (const int signal : {SIGUSR1, SIGUSR2}) std::signal(signal, SIG_IGN);
  try {
    StoreOptions options = OptionsFromEnvironment();
    options.snapshots.clear();
    options.snapshot_every.clear();
    if (!options.log) options.log = PrintError;
    const std::vector<std::unique_ptr<KVStore>> stores = RestoreStores(path, options);
    std::fputs(kRestored, stdout);
    std::fflush(stdout);
    AwaitEndOfLife(*stores[0]);
    std::_Exit(0);  // without leaving the job, so that the rank continues
  } catch (const Error& error) {
    const bool is_damaged = error.code() == Code::kDataLoss;
    if (!is_damaged && !IsOfJob(error.code())) throw;
    std::fprintf(stderr, "tkv: %s\n", error.what());
    return is_damaged ? kRestorerFindsDamage : kRestorerIsLost;
  }
}

}  // namespace tkv::cli
