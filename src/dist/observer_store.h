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

  // ---- operations that only workers have
  void Init(std::span<const InitItem>) override { Refuse("init"); }
  void Push(std::span<const PushItem>) override { Refuse("push"); }
  void PushPull(std::span<const PushItem>, std::span<const PullItem>) override {
    Refuse("pushpull");
  }
  Ticket PushAsync(std::span<const PushItem>) override { Refuse("push"); }
  Ticket PushPullAsync(std::span<const PushItem>, std::span<const PullItem>) override {
    Refuse("pushpull");
  }
  void Broadcast(std::span<const InitItem>, std::span<const PullItem>) override {
    Refuse("broadcast");
  }
  void InitRows(std::span<const RowsInitItem>) override { Refuse("init_table"); }
  void PushRows(std::span<const RowsPushItem>, std::span<const PushItem>,
                std::string_view verb) override {
    Refuse(verb);
  }
  Ticket PushRowsAsync(std::span<const RowsPushItem>, std::span<const PushItem>,
                       std::string_view verb) override {
    Refuse(verb);
  }
  RowsExport ExportRows(const KeyView&, const RowsFilter&) override { Refuse("export_rows"); }
  void ImportRows(const KeyView&, const Rows&) override { Refuse("import_rows"); }
  void Assign(std::span<const InitItem>) override { Refuse("assign"); }
  void Delete(const KeyView&) override { Refuse("delete"); }
  void SetUpdater(UpdateFunction, UpdateEnd, SumType) override { Refuse("set_updater"); }
  void SetOptimizer(std::shared_ptr<const Optimizer>) override { Refuse("set_optimizer"); }
  void SetGradientCompression(const Compression&, const std::string&) override {
    Refuse("set_gradient_compression");
  }
  std::string Save(const std::string&) override { Refuse("save"); }
  Ticket SaveAsync(const std::string&) override { Refuse("save"); }
  SnapshotInfo Load(const std::string&) override { Refuse("load"); }
  void SaveStates(const std::string&) override { Refuse("save_optimizer_states"); }
  void LoadStates(const std::string&) override { Refuse("load_optimizer_states"); }
  void Barrier() override { Refuse("barrier"); }
  Ticket BarrierAsync() override { Refuse("barrier"); }
  void StartTrace() override { Refuse("trace"); }
  void PauseTrace() override { Refuse("trace"); }
  TraceInfo WriteTrace(const std::string&) override { Refuse("trace"); }

 private:
  template <typename Item>
  static std::vector<KeyView> KeysOf(std::span<const Item> items) {
    std::vector<KeyView> keys;
    for (const Item& item : items) keys.push_back(item.key);
    return keys;
  }
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
  [[noreturn]] void Refuse(std::string_view verb) const;
};

}  // namespace tkv
