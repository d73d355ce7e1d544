#include "snapshot_folders.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "restore.h"
#include "tkv/error.h"
#include "tkv/kvstore.h"

namespace tkv::cli {
namespace {

namespace fs = std::filesystem;

// Refuses folders with which the job would not resume as requested.
void CheckPlaces(const LaunchOptions& options) {
  const bool is_one = fs::exists(fs::path(options.restore) / kIndexName);
  if (!is_one) return;
  const std::string folder = fs::path(options.restore).parent_path().string();
  if (options.snapshots == options.restore) {
    throw Error(Code::kInvalidArgument,
                "launch: --restore " + options.restore +
                    ": one snapshot takes no later ones; --snapshots PATH says where they go, and "
                    "--restore " +
                    folder + " goes on from the newest one");
  }
  if (options.snapshots == folder) {
    throw Error(Code::kInvalidArgument, "launch: --snapshots " + folder +
                                            ": the job goes on from the newest snapshot there, "
                                            "which --restore " +
                                            options.restore + " may not be; name another folder");
  }
}

bool IsSnapshotOrFolderOfThem(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / kIndexName, ignored) || !SnapshotsIn(path).empty();
}

// Refuses the path of one store of a snapshot, which only `load` takes.  Its keys would be those of
// a store that the script may not have, and the script would begin anew.
void CheckNamesNoStore(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  constexpr std::string_view kPrefix = "store-";
  const bool names_store =
      name.size() > kPrefix.size() && name.starts_with(kPrefix) &&
      name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
  std::error_code ignored;  // CheckReachable names it
  const std::string parent = fs::path(path).parent_path().string();
  // Elsewhere a folder of this name is one like any other, which the job makes.
  if (!names_store || fs::exists(path, ignored) || !IsSnapshotOrFolderOfThem(parent)) return;
  throw Error(Code::kInvalidArgument,
              "launch: --restore " + path +
                  " names one store of a snapshot; a job goes on with all of "
                  "them: give " +
                  parent + ", or load it in the script");
}

std::string AbsolutePath(const std::string& path) {
  std::string whole = fs::absolute(path).lexically_normal().string();
  if (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  return whole;
}

// Returns the error for a link whose target does not exist.
Error Dangling(const std::string& what, const fs::path& folder, const fs::path& link) {
  std::error_code ignored;
  return {Code::kNotFound, what + (link == folder ? "" : ": " + link.string()) + " is a link to " +
                               fs::read_symlink(link, ignored).string() +
                               ", which does not exist; create that folder, or name another"};
}

// Refuses a folder that cannot be reached, or a link to nothing on its path.  The job would begin
// anew, and every save would fail.
void CheckReachable(const std::string& option, const std::string& path) {
  const std::string what = "launch: " + option + " " + path;
  std::error_code error;
  if (fs::status(path, error).type() == fs::file_type::none) {
    throw Error(Code::kFailedPrecondition, what + ": " + error.message());
  }
  for (fs::path part = path; part.has_relative_path(); part = part.parent_path()) {
    const bool is_link = fs::is_symlink(fs::symlink_status(part, error));
    if (is_link && !fs::exists(part, error)) throw Dangling(what, path, part);
  }
}

}  // namespace

bool HasSnapshot(const LaunchOptions& options, const std::string& name, const std::string& path) {
  try {
    return KVStore::HasSnapshot(path);
  } catch (const Error& error) {
    std::string text = "launch: " + name + " " + error.what();
    if (error.code() == Code::kDataLoss) text += AdviceOnDamage(path, options.snapshots);
    throw Error(error.code(), text);
  }
}

void PrepareSnapshotFolders(LaunchOptions* options) {
  const bool is_saving = std::getenv("TKV_SNAPSHOT_EVERY") != nullptr;
  // Makes paths absolute, because a script may change its folder before it creates its store.
  for (const char* const name : {"TKV_SNAPSHOTS", "TKV_ROWS_DIR"}) {
    if (const char* const folder = std::getenv(name); folder != nullptr && *folder != 0) {
      setenv(name, AbsolutePath(folder).c_str(), 1);
    }
  }
  const char* const given = std::getenv("TKV_SNAPSHOTS");
  const std::string own = given == nullptr ? std::string() : given;
  // Without --restore a launcher on another host than its workers need not see the folder.
  const bool is_seen = !options->restore.empty() || options->hosts.empty();
  if (is_saving && is_seen && !own.empty()) CheckReachable("--snapshots", own);
  if (options->restore.empty()) {
    if (is_saving && given == nullptr) {
      throw Error(Code::kInvalidArgument,
                  "launch: --snapshot-every: --restore PATH or --snapshots PATH says where to");
    }
    return;
  }
  options->restore = AbsolutePath(options->restore);
  CheckNamesNoStore(options->restore);
  CheckReachable("--restore", options->restore);
  if (is_saving) {
    options->snapshots = own.empty() ? options->restore : own;
    setenv("TKV_SNAPSHOTS", options->snapshots.c_str(), 1);
  }
  const bool is_there = HasSnapshot(*options, "--restore", options->restore);
  if (is_there && is_saving) CheckPlaces(*options);
  if (!is_there && !is_saving) {
    throw Error(Code::kNotFound, "launch: --restore " + options->restore +
                                     ": there is no snapshot; with --snapshot-every the job would "
                                     "begin anew");
  }
}

}  // namespace tkv::cli
