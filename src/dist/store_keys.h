// The keys that a store of one worker has, in the order of their init.

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "dist/store_calls.h"
#include "store/key_hash.h"

namespace tkv {

class StoreKeys {
 public:
  // Makes the keys of a store with these calls, which must outlive them.
  explicit StoreKeys(const StoreCalls* calls) : calls_(*calls) {}

  // Guards the keys, and the members of records that say so.  The caller holds it for all methods
  // but Lock, and during no wait.
  std::mutex& mutex() const { return mutex_; }
  // Locks the mutex of an open store.
  //   throws  kFailedPrecondition  as StoreCalls::CheckOpen
  std::unique_lock<std::mutex> Lock(std::string_view verb) const;

  size_t size() const { return order_.size(); }
  const std::vector<Key>& order() const { return order_; }
  bool Contains(const KeyView& key) const { return records_.contains(key); }
  // Returns the record of a key, or null if it is not known.
  RecordPtr Find(const KeyView& key) const;
  //   throws  kNotFound, kInvalidArgument (an int among strings, or a string among ints)
  RecordPtr Get(std::string_view verb, const KeyView& key) const;
  // Returns all records, in the order of the keys.
  std::vector<RecordPtr> Records() const;
  // Returns the most rounds in which this worker has pushed one of the keys.
  uint64_t MostRounds() const;
  // Checks keys that are to be added in one call.
  //   throws  kAlreadyExists, kInvalidArgument (a key twice, or ints among strings)
  void CheckNew(std::string_view verb, std::span<const KeyView> keys) const;

  // Adds a key, or replaces its record.
  void Add(const RecordPtr& record);
  void Erase(const KeyView& key);
  void Clear();

 private:
  const StoreCalls& calls_;
  mutable std::mutex mutex_;
  boost::unordered_flat_map<Key, RecordPtr, KeyHash, KeyEqual> records_;
  std::vector<Key> order_;
};

}  // namespace tkv
