#include "checkpoint/search.h"

#include <charconv>
#include <utility>

#include "base/format.h"
#include "checkpoint/snapshot_folder.h"

namespace tkv::checkpoint {
namespace {

// Returns the number N of a path that ends in "/store-N".
std::optional<uint32_t> StoreNamedBy(const std::string& path) {
  constexpr std::string_view kPrefix = "/store-";
  const size_t place = path.rfind(kPrefix);
  if (place == std::string::npos) return std::nullopt;
  const std::string_view digits = std::string_view(path).substr(place + kPrefix.size());
  uint32_t store = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), store);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  return is_number ? std::optional(store) : std::nullopt;
}

bool IsFolderOfSnapshots(const std::string& path) {
  return IsFolder(path) && !Exists(IndexIn(path));
}

// Returns true if there are keys of a store, or no keys at all.
bool Has(const Index& index, uint32_t store) {
  const std::set<uint32_t> stores = StoresOf(index);
  return stores.empty() || stores.contains(store);
}

}  // namespace

Reader Open(const std::string& path) {
  CheckPath(path);
  if (const auto store = Exists(path) ? std::nullopt : StoreNamedBy(path)) {
    const std::string whole = path.substr(0, path.rfind('/'));
    auto found = FindStore(whole, *store);
    if (found && !found->keys().empty()) return *std::move(found);
    throw Fail(Code::kNotFound, "{}: there are no keys of store {}", whole, *store);
  }
  if (!IsFolderOfSnapshots(path)) return Reader(path);
  const auto newest = NewestIn(path);
  if (!newest) throw Fail(Code::kNotFound, "{}: there is no snapshot", path);
  return Reader(*newest);
}

std::optional<Reader> FindStore(const std::string& path, uint32_t store) {
  CheckPath(path);
  if (!IsFolderOfSnapshots(path)) {
    Reader reader = Open(path);
    const std::set<uint32_t> stores = reader.stores();
    if (!stores.empty() && !stores.contains(store)) return std::nullopt;
    reader.TakeStore(store);
    return reader;
  }
  for (const std::string& snapshot : SnapshotsIn(path)) {
    Index index = ReadIndex(snapshot);
    // Files of snapshots without the store may be damaged.
    if (Has(index, store)) return Reader(snapshot, std::move(index), store);
  }
  return std::nullopt;
}

Reader OpenStore(const std::string& path, uint32_t store) {
  if (auto found = FindStore(path, store)) return *std::move(found);
  Reader reader = Open(path);
  const std::set<uint32_t> stores = StoresAt(path, [](const Error& error) { throw error; });
  if (stores.size() > 1) {
    throw Fail(Code::kInvalidArgument,
               "{}: there are no keys of store {}, and those of several others; '{}/store-{}' "
               "names the store whose keys are to be taken",
               path, store, path, *stores.begin());
  }
  return reader;
}

std::set<uint32_t> StoresAt(const std::string& path,
                            const std::function<void(const Error&)>& unread) {
  const Reader newest = Open(path);
  std::set<uint32_t> stores = newest.stores();
  if (!IsFolderOfSnapshots(path)) return stores;
  for (const std::string& snapshot : SnapshotsIn(path)) {
    if (snapshot == newest.path()) continue;
    try {
      stores.merge(StoresOf(ReadIndex(snapshot)));
    } catch (const Error& error) {
      // Another try may succeed after any other error.
      if (error.code() != Code::kDataLoss && error.code() != Code::kFailedPrecondition) throw;
      unread(error);
    }
  }
  return stores;
}

}  // namespace tkv::checkpoint
