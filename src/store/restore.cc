// Creates the keys of a store from a snapshot.

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/format.h"
#include "checkpoint/search.h"
#include "store/snapshots.h"

namespace tkv {
namespace {

constexpr size_t kKeysAtOnce = 1000;
constexpr size_t kBytesAtOnce = size_t{64} << 20;

// Returns the optimizer whose states a snapshot has; null if it has none.
std::shared_ptr<const Optimizer> OptimizerOf(const checkpoint::Reader& reader) {
  const SavedKey* first_key = nullptr;
  for (const SavedKey& key : reader.keys()) {
    if (key.program.text.empty() || !key.own.text.empty()) continue;
    if (first_key == nullptr) first_key = &key;
    const checkpoint::SavedProgram& first = first_key->program;
    if (key.program.text != first.text || key.program.multi_precision != first.multi_precision) {
      throw Fail(Code::kUnimplemented, "key {}: states of another optimizer than those before it",
                 key.key.view().ToString());
    }
  }
  if (first_key == nullptr) return nullptr;
  return OptimizerOf(first_key->program, reader.path(), first_key->key);
}

void MakeRowKeys(KVStore* store, std::span<const SavedKey> keys, const std::string& path) {
  std::vector<RowsInitItem> items;
  for (const SavedKey& key : keys) {
    items.push_back({key.key.view(), key.shape, key.dtype, key.row_count, key.initializer, nullptr,
                     key.is_async ? "async" : "sync", key.policy,
                     key.own.text.empty() ? nullptr : OptimizerOf(key.own, path, key.key)});
  }
  store->InitRows(items);
}

// Creates the keys with zeros, in the order of the snapshot.  Loading then replaces the zeros.
//   created  becomes the number of keys that exist, also if a later one fails
void MakeKeys(KVStore* store, const checkpoint::Reader& reader, size_t* created) {
  const std::vector<SavedKey>& keys = reader.keys();
  for (size_t begin = 0, end = 0; begin < keys.size(); begin = end) {
    *created = begin;
    while (end < keys.size() && end - begin < kKeysAtOnce && keys[end].by_rows) ++end;
    if (end > begin) {
      MakeRowKeys(store, std::span(keys).subspan(begin, end - begin), reader.path());
      continue;
    }
    std::vector<NDArray> values;
    size_t bytes = 0;
    for (; end < keys.size() && !keys[end].by_rows && values.size() < kKeysAtOnce &&
           bytes < kBytesAtOnce;
         ++end) {
      values.push_back(NDArray::Zeros(keys[end].shape, keys[end].dtype));
      bytes += values.back().bytes();
    }
    std::vector<InitItem> items;
    for (size_t i = begin; i < end; ++i) {
      items.push_back(
          {keys[i].key.view(), &values[i - begin], keys[i].is_async ? "async" : "sync"});
    }
    store->Init(items);
  }
  *created = keys.size();
}

}  // namespace

KVStore::SnapshotInfo KVStore::Restore(const std::string& path) {
  if (size() > 0) {
    throw Fail(Code::kFailedPrecondition,
               "restore {}: the store has {} keys; load puts values back", path, size());
  }
  auto* const restores = dynamic_cast<RestoresSnapshots*>(this);
  std::optional<checkpoint::Reader> reader;
  std::shared_ptr<const Optimizer> optimizer;
  size_t created = 0;
  RestoreSteps steps{.path = path};
  steps.check = [&] {
    Named("restore", [&] {
      reader.emplace(checkpoint::OpenStore(path, restores != nullptr ? restores->number() : 0));
      CheckRestorable(*reader);
      optimizer = OptimizerOf(*reader);
    });
  };
  steps.create = [&] {
    Named("restore", [&] {
      if (optimizer != nullptr) SetOptimizer(optimizer);
      MakeKeys(this, *reader, &created);
    });
    return Load(path);
  };
  steps.created = [&] { return std::span(reader->keys()).first(created); };
  if (restores != nullptr) return restores->Run(steps);
  steps.check();
  return steps.create();
}

bool KVStore::HasSnapshot(const std::string& path) {
  try {
    const checkpoint::Reader reader = checkpoint::Open(path);
    return true;
  } catch (const Error& error) {
    if (error.code() != Code::kNotFound) throw;
    return false;
  }
}

}  // namespace tkv
