// The keys of a store of one process, and the updater of their pushes.

#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "rows/row_table.h"
#include "store/claim.h"
#include "store/home.h"
#include "tkv/kvstore.h"

namespace tkv {

// The keys of a store.  Thread-safe.
class LocalKeys final {
 public:
  //   options  must outlive the keys
  //   throws   the errors of RowFile, if the options name a folder for rows
  explicit LocalKeys(const StoreOptions& options);
  // Leaks the keys in a child of fork(): a lock that another thread of the parent held stays locked
  // for ever.
  ~LocalKeys();
  LocalKeys(const LocalKeys&) = delete;
  LocalKeys& operator=(const LocalKeys&) = delete;

  // Returns the lock of the keys.
  //   throws  kFailedPrecondition  the store is closed, or was made before fork()
  std::unique_lock<std::mutex> Lock(std::string_view verb) const;
  // Returns the part that threads share.  The caller has the lock.
  Shared* shared() const { return shared_.get(); }
  // Returns a claim of a call that has no keys yet.
  Claim NewClaim(std::string_view verb) const { return Claim(verb, options_, shared_.get()); }

  // Creates keys with values, or keys with values and keys kept by rows.
  //   blocks  until the values can be read, at most the timeout (`patience`)
  //   throws  kAlreadyExists, kInvalidArgument, kOutOfRange, kResourceExhausted, kDeadlineExceeded,
  //           and as Lock; nothing has changed
  void Create(std::string_view verb, std::span<const InitItem> items);
  void Create(std::string_view verb, std::span<const RowsInitItem> items);
  // The two parts of Create: makes keys with values, which no other call sees, and adds them.
  std::vector<std::shared_ptr<Entry>> Make(std::string_view verb,
                                           std::span<const InitItem> items) const;
  void Add(std::string_view verb, std::span<const InitItem> items,
           std::span<const std::shared_ptr<Entry>> entries);
  // Replaces the values of keys, and keeps the states of the optimizer.
  //   blocks  while other calls use the keys, at most the timeout
  //   throws  kNotFound, kInvalidArgument, kUnimplemented, kDeadlineExceeded, and the errors of GPUs
  void Assign(std::string_view verb, std::span<const InitItem> items);
  // Deletes a key.
  //   homes   forgets the home of the key
  //   blocks  while other calls use the key, at most the timeout
  //   throws  kNotFound, kDeadlineExceeded, kFailedPrecondition
  void Delete(const KeyView& key, Homes* homes);
  // Replaces the updater.  The old one is freed after the lock is released: this may need a lock of
  // the user (Python's GIL), and a thread with that lock may wait for the lock of the keys.
  void SetUpdater(std::string_view verb, std::shared_ptr<Updater> updater);
  // Replaces the updater by an optimizer.  An equal optimizer continues with the states.
  //   throws  kFailedPrecondition  a key kept by rows needs an optimizer that updates rows
  void SetOptimizer(std::string_view verb, std::shared_ptr<const Optimizer> optimizer);

  std::vector<Key> Names(std::string_view verb) const;
  KVStore::KeyInfo Describe(std::string_view verb, const KeyView& key) const;
  // Adds the counts of the keys.  The caller has the lock.
  void AddTo(StoreStats* stats) const;

  // Waits for calls under way, and then frees the keys and the updater.
  //   blocks  at most the timeout
  //   throws  kDeadlineExceeded, kFailedPrecondition (an updater is running on this thread)
  void Close();

 private:
  void CheckNew(std::string_view verb, std::span<const InitItem> items) const;
  void CheckNewWithLock(std::string_view verb, std::span<const InitItem> items) const;
  std::shared_ptr<Entry> MakeEntry(const KeyView& key, const NDArray& value) const;
  Entry& WaitUntilFree(const KeyView& key, std::unique_lock<std::mutex>* lock);
  void WaitForCallsUnderWay(std::unique_lock<std::mutex>* lock);

  const StoreOptions& options_;
  const unsigned birth_;
  const std::shared_ptr<RowDisk> disk_;  // null: no folder was given
  std::unique_ptr<Shared> shared_;
};

}  // namespace tkv
