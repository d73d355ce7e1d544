#include "store/local_keys.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/format.h"
#include "base/process.h"
#include "rows/row_file.h"
#include "store/checks.h"
#include "store/local_rows.h"
#include "store/snapshots.h"
#include "tkv/ops.h"

namespace tkv {

LocalKeys::LocalKeys(const StoreOptions& options)
    : options_(options),
      birth_(ForkGeneration()),
      disk_(options.rows_dir.empty() ? nullptr : std::make_shared<RowFile>(options.rows_dir)),
      shared_(new Shared) {}

LocalKeys::~LocalKeys() {
  if (ForkGeneration() != birth_) {
    [[maybe_unused]] Shared* const leaked = shared_.release();
  }
}

std::unique_lock<std::mutex> LocalKeys::Lock(std::string_view verb) const {
  if (ForkGeneration() != birth_) {
    throw Fail(
        Code::kFailedPrecondition,
        "{}: this store was made before fork() in another process; create one in this process",
        verb);
  }
  std::unique_lock lock(shared_->mutex);
  shared_->CheckOpen(verb);
  return lock;
}

// -------------------------------------------------------------------------------------------------
// create

void LocalKeys::CheckNewWithLock(std::string_view verb, std::span<const InitItem> items) const {
  const auto& entries = shared_->keys.entries();
  std::vector<KeyView> keys;
  keys.reserve(items.size());
  for (const InitItem& item : items) {
    CheckMode(verb, item.key, item.mode);
    keys.push_back(item.key);
  }
  CheckNewKeys(verb, keys,
               entries.empty() ? std::nullopt : std::optional(entries.front()->key.is_string()),
               [&](const KeyView& key) { return shared_->keys.Find(key) != nullptr; });
}

void LocalKeys::CheckNew(std::string_view verb, std::span<const InitItem> items) const {
  const auto lock = Lock(verb);
  CheckNewWithLock(verb, items);
}

std::shared_ptr<Entry> LocalKeys::MakeEntry(const KeyView& key, const NDArray& value) const {
  value.storage()->WaitReadable(options_.patience);
  return std::make_shared<Entry>(key, IsOfDevice(value) ? value.WithContext({}) : value.Copy());
}

std::vector<std::shared_ptr<Entry>> LocalKeys::Make(std::string_view verb,
                                                    std::span<const InitItem> items) const {
  for (const InitItem& item : items) CheckMade(verb, item.key, item.value);
  CheckNew(verb, items);
  std::vector<std::shared_ptr<Entry>> entries;
  entries.reserve(items.size());
  for (const InitItem& item : items) entries.push_back(MakeEntry(item.key, *item.value));
  return entries;
}

// Values are copied without the lock.  Another thread may create a key meanwhile, so the check is
// repeated.
void LocalKeys::Add(std::string_view verb, std::span<const InitItem> items,
                    std::span<const std::shared_ptr<Entry>> entries) {
  const auto lock = Lock(verb);
  CheckNewWithLock(verb, items);
  const Optimizer* const optimizer = shared_->updater->optimizer.get();
  for (const auto& entry : entries) {
    if (!entry->by_rows() || entry->rows->own || optimizer == nullptr) continue;
    CheckUpdatesRows(verb, entry->key.view(), *optimizer, Code::kInvalidArgument);
  }
  shared_->keys.Insert(entries);
}

void LocalKeys::Create(std::string_view verb, std::span<const InitItem> items) {
  Add(verb, items, Make(verb, items));
}

void LocalKeys::Create(std::string_view verb, std::span<const RowsInitItem> items) {
  std::vector<InitItem> keys;
  keys.reserve(items.size());
  for (const RowsInitItem& item : items) keys.push_back({item.key, nullptr, item.mode});
  CheckNew(verb, keys);
  for (const RowsInitItem& item : items) {
    if (item.value == nullptr) {
      CheckNewRows(verb, item);
    } else {
      CheckMade(verb, item.key, item.value);
    }
  }
  std::vector<std::shared_ptr<Entry>> entries;
  entries.reserve(items.size());
  for (const RowsInitItem& item : items) {
    entries.push_back(item.value == nullptr ? MakeRowsEntry(verb, item, options_.patience, disk_)
                                            : MakeEntry(item.key, *item.value));
  }
  Add(verb, keys, entries);
}

// -------------------------------------------------------------------------------------------------
// assign

void LocalKeys::Assign(std::string_view verb, std::span<const InitItem> items) {
  const AssignedValues given(verb, items);
  Claim claim = NewClaim(verb);
  ClaimKeys(given.items(), {}, Lock(verb), &claim);
  struct Made {
    NDArray value, master;
  };
  std::vector<Made> made(items.size());  // all are made before anything changes
  for (size_t i = 0; i < items.size(); ++i) {
    const Entry& entry = *claim.entries[claim.push_groups[i]];
    CheckAssignable(verb, entry.key.view(), entry.by_rows());
    NamingKey(verb, entry.key.view(), [&] {
      items[i].value->storage()->WaitReadable(options_.patience);
      made[i].value = items[i].value->Packed().WithContext(entry.value.context());
      if (made[i].value.storage() == items[i].value->storage()) {
        made[i].value = items[i].value->Copy();
      }
      if (entry.master) made[i].master = ConvertFloat(made[i].value, entry.master.dtype());
    });
  }
  std::lock_guard lock(shared_->mutex);
  for (size_t i = 0; i < items.size(); ++i) {
    Entry& entry = *claim.entries[claim.push_groups[i]];
    std::swap(entry.value, made[i].value);
    std::swap(entry.master, made[i].master);
  }
}

// -------------------------------------------------------------------------------------------------
// delete

// Returns the key as soon as no call uses it.
Entry& LocalKeys::WaitUntilFree(const KeyView& key, std::unique_lock<std::mutex>* lock) {
  Entry* entry = &shared_->keys.Get("delete", key);
  if (entry->is_written && entry->writer == std::this_thread::get_id()) {
    throw Fail(Code::kFailedPrecondition, "delete {}: the updater that is running is updating it",
               key.ToString());
  }
  WaitForKeys(shared_.get(), options_, "delete", lock, [&]() -> const Key* {
    entry = shared_->keys.Find(key);  // null if another thread has deleted the key meanwhile
    const bool is_free = entry == nullptr || (!entry->is_written && entry->readers == 0);
    return is_free || shared_->Refuses() ? nullptr : &entry->key;
  });
  shared_->CheckOpen("delete");
  if (entry == nullptr) {
    throw Fail(Code::kNotFound, "delete {}: no such key", key.ToString());
  }
  return *entry;
}

void LocalKeys::Delete(const KeyView& key, Homes* homes) {
  auto lock = Lock("delete");
  Entry& entry = WaitUntilFree(key, &lock);
  const KeyStats stats = entry.Stats();  // needs memory, which the rest does not
  homes->Forget(entry);
  entry.is_deleted = true;
  shared_->deleted.rounds += stats.rounds;
  shared_->deleted.bytes += stats.bytes;
  shared_->keys.Erase(&entry);
  shared_->released.notify_all();
}

// -------------------------------------------------------------------------------------------------
// updater

void LocalKeys::SetUpdater(std::string_view verb, std::shared_ptr<Updater> updater) {
  const auto lock = Lock(verb);
  std::swap(shared_->updater, updater);
}

void LocalKeys::SetOptimizer(std::string_view verb, std::shared_ptr<const Optimizer> optimizer) {
  auto replacement = std::make_shared<Updater>();
  replacement->optimizer = std::move(optimizer);
  const auto lock = Lock(verb);
  std::vector<Key> keys;
  for (const auto& entry : shared_->keys.entries()) keys.push_back(entry->key);
  const Updater& before = *shared_->updater;
  if (before.optimizer != nullptr && DoSame(*before.optimizer, *replacement->optimizer, keys)) {
    replacement->first_optimizer = before.StateOwner();
  }
  for (const auto& entry : shared_->keys.entries()) {
    if (!entry->by_rows() || entry->rows->own) continue;
    CheckUpdatesRows(verb, entry->key.view(), *replacement->optimizer, Code::kFailedPrecondition);
  }
  std::swap(shared_->updater, replacement);
}

// -------------------------------------------------------------------------------------------------
// queries

std::vector<Key> LocalKeys::Names(std::string_view verb) const {
  const auto lock = Lock(verb);
  std::vector<Key> keys;
  keys.reserve(shared_->keys.entries().size());
  for (const auto& entry : shared_->keys.entries()) keys.push_back(entry->key);
  return keys;
}

KVStore::KeyInfo LocalKeys::Describe(std::string_view verb, const KeyView& key) const {
  const auto lock = Lock(verb);
  const Entry& entry = shared_->keys.Get(verb, key);
  if (entry.by_rows()) {
    return {entry.rows->row_shape, entry.dtype(), {}, true, entry.rows->row_count};
  }
  const NDArray& value = entry.value;
  return {value.shape(), value.dtype(), value.context()};
}

void LocalKeys::AddTo(StoreStats* stats) const {
  shared_->waits.AddTo(stats);
  std::vector<KeyStats> keys;
  keys.reserve(shared_->keys.entries().size());
  for (const auto& entry : shared_->keys.entries()) keys.push_back(entry->Stats());
  AddKeys(std::move(keys), shared_->deleted, stats);
}

// -------------------------------------------------------------------------------------------------
// close

// Waits for calls that use a key.  Calls that wait for a key fail immediately.
void LocalKeys::WaitForCallsUnderWay(std::unique_lock<std::mutex>* lock) {
  ++shared_->closing;
  shared_->released.notify_all();
  const auto is_idle = [](const auto& entry) { return !entry->is_written && entry->readers == 0; };
  try {
    WaitForKeys(shared_.get(), options_, "close", lock, [&]() -> const Key* {
      const auto& entries = shared_->keys.entries();
      const auto used = std::find_if_not(entries.begin(), entries.end(), is_idle);
      return shared_->closed || used == entries.end() ? nullptr : &(*used)->key;
    });
  } catch (...) {
    --shared_->closing;
    throw;
  }
  --shared_->closing;
}

void LocalKeys::Close() {
  if (ForkGeneration() != birth_) return;
  KeyTable keys;  // freed, like the updater, after the lock is released
  auto updater = std::make_shared<Updater>();
  std::unique_lock lock(shared_->mutex);
  if (shared_->closed) return;
  if (shared_->IsUpdating()) {
    throw Fail(Code::kFailedPrecondition,
               "close: an updater of this store is running on this thread");
  }
  WaitForCallsUnderWay(&lock);
  if (shared_->closed) return;
  shared_->closed = true;
  std::swap(shared_->keys, keys);
  std::swap(shared_->updater, updater);
  shared_->released.notify_all();
}

}  // namespace tkv
