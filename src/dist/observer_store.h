// The KVStore of an observer, which reads the keys that workers have made.

#pragma once

#include "dist/dist_store.h"

namespace tkv {

class ObserverStore final : public DistStore {
 public:
  // Observes the store with that number, in the order of create().
  ObserverStore(const StoreOptions& options, std::shared_ptr<Worker> observer, uint32_t store)
      : DistStore(options, std::move(observer), store) {}

  void Pull(std::span<const PullItem> items) override {
    Find("pull", KeysOf(items));
    DistStore::Pull(items);
  }
  Ticket PullAsync(std::span<const PullItem> items) override {
    Find("pull", KeysOf(items));
    return DistStore::PullAsync(items);
  }
  void PullRows(std::span<const RowsPullItem> items, std::string_view verb) override {
    Find(verb, KeysOf(items));
    DistStore::PullRows(items, verb);
  }
  Ticket PullRowsAsync(std::span<const RowsPullItem> items, std::string_view verb) override {
    Find(verb, KeysOf(items));
    return DistStore::PullRowsAsync(items, verb);
  }
  TableStats StatsOfTable(const KeyView& key) override {
    FindOne("table_stats", key);
    return DistStore::StatsOfTable(key);
  }
  KeyInfo Describe(const KeyView& key, std::string_view verb) const override;
  bool Contains(const KeyView& key) const override;
  std::vector<Key> Keys() const override;
  size_t size() const override { return Keys().size(); }
  // Returns the round of the last pull of the key, or 0 if there was none.
  uint64_t Round(const KeyView& key) const override;

 private:
  // Makes the store know the keys, so that they can be read.
  //   blocks  for a server at most the server patience
  //   throws  kNotFound  a key does not exist
  void Find(std::string_view verb, const std::vector<KeyView>& keys) {
    for (const KeyView& key : keys) FindOne(verb, key);
  }
  void FindOne(std::string_view verb, const KeyView& key);
  // Returns the present definition of the key.
  //   blocks, throws  as Find
  KeyMeta Ask(std::string_view verb, const KeyView& key) const;
  std::string NameOf(std::string_view verb, const KeyView& key) const;
};

}  // namespace tkv
