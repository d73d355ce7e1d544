#include "store/local_store.h"
#include "rows/row_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/memory_error.h"
#include "base/process.h"
#include "store/checks.h"
#include "store/claim.h"
#include "store/home.h"
#include "store/local_compression.h"
#include "store/local_rows.h"
#include "store/local_snapshots.h"
#include "store/local_trace.h"
#include "store/pull_plan.h"
#include "store/push_plan.h"
#include "store/rows_export.h"
#include "store/snapshots.h"
#include "store/types.h"
#include "tkv/ops.h"
#include "update/parallel.h"

namespace tkv {
namespace {

using Clock = std::chrono::steady_clock;

// A store of one process.
class LocalStore final : public KVStore, public SavesUpdaterStates {
 public:
  LocalStore(std::string type, const StoreOptions& options)
      : type_(std::move(type)),
        options_(options),
        birth_(ForkGeneration()),
        has_homes_(FindStoreType(type_)->kind != StoreType::Kind::kLocal),
        needs_gpus_(FindStoreType(type_)->kind == StoreType::Kind::kGpus),
        shared_(new Shared) {
    if (!options.rows_dir.empty()) disk_ = std::make_shared<RowFile>(options.rows_dir);
  }

  ~LocalStore() override {
    // In a child of fork(), leak the shared part: a lock that another thread of the parent held
    // stays locked for ever.
    if (ForkGeneration() != birth_) {
      [[maybe_unused]] Shared* const leaked = shared_.release();
    }
  }

  void Init(std::span<const InitItem> items) override {
    Counted(Verb::kInit, [&] { InitAs("init", items); });
  }
  void Push(std::span<const PushItem> items) override {
    FailureCounted(Verb::kPush, "push", [&] { RunPush(Verb::kPush, items); });
  }
  void Pull(std::span<const PullItem> items) override {
    FailureCounted(Verb::kPull, "pull", [&] { RunPull(Verb::kPull, items); });
  }
  void PushPull(std::span<const PushItem> items, std::span<const PullItem> outs) override {
    FailureCounted(Verb::kPushPull, "pushpull", [&] { RunPushPull(items, outs); });
  }
  void Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) override;
  void InitRows(std::span<const RowsInitItem> items, std::string_view verb) override;
  void PushRows(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                std::string_view verb) override {
    FailureCounted(Verb::kPush, verb, [&] { RunPushRows(verb, items, whole); });
  }
  void PullRows(std::span<const RowsPullItem> items, std::string_view verb) override {
    FailureCounted(Verb::kPull, verb, [&] { RunPullRows(verb, items); });
  }
  RowsExport ExportRows(const KeyView& key, const RowsFilter& filter) override;
  void ImportRows(const KeyView& key, const Rows& rows) override;
  TableStats StatsOfTable(const KeyView& key) override;
  void Assign(std::span<const InitItem> items) override {
    Counted(Verb::kInit, "assign", [&] { AssignAs("assign", items); });
  }
  void Delete(const KeyView& key) override;
  uint64_t Round(const KeyView& key) const override {
    const auto lock = Lock("round");
    return shared_->keys.Get("round", key).rounds;
  }
  void SetUpdater(UpdateFunction updater, UpdateEnd end, SumType sums) override {
    SetUpdaterWithStates(std::move(updater), std::move(end), {}, sums);
  }
  void SetUpdaterWithStates(UpdateFunction updater, UpdateEnd end, UpdaterStates states,
                            SumType sums) override;
  void SetOptimizer(std::shared_ptr<const Optimizer> optimizer) override;
  void SetGradientCompression(const Compression& compression, const std::string& keys) override;

  std::string Save(const std::string& path) override {
    return CountedResult(Verb::kSave, "save", [&] { return SaveAs("save", path, Parts::kAll); });
  }
  SnapshotInfo Load(const std::string& path) override {
    return CountedResult(Verb::kLoad, "load", [&] { return LoadAs("load", path, Parts::kAll); });
  }
  void SaveStates(const std::string& file) override {
    Counted(Verb::kSave, "save_optimizer_states",
            [&] { SaveAs("save_optimizer_states", file, Parts::kStates); });
  }
  void LoadStates(const std::string& file) override {
    Counted(Verb::kLoad, "load_optimizer_states",
            [&] { LoadAs("load_optimizer_states", file, Parts::kStates); });
  }

  std::string type() const override { return type_; }
  int rank() const override { return 0; }
  int num_workers() const override { return 1; }
  void Barrier() override {
    Counted(Verb::kBarrier, [&] { Lock("barrier"); });
  }

  size_t size() const override {
    const auto lock = Lock("len");
    return shared_->keys.entries().size();
  }
  bool Contains(const KeyView& key) const override {
    const auto lock = Lock("in");
    return shared_->keys.Find(key) != nullptr;
  }
  KeyInfo Describe(const KeyView& key, std::string_view verb) const override {
    const auto lock = Lock(verb);
    const Entry& entry = shared_->keys.Get(verb, key);
    if (entry.by_rows()) {
      return {entry.rows->row_shape, entry.dtype(), {}, true, entry.rows->row_count};
    }
    const NDArray& value = entry.value;
    return {value.shape(), value.dtype(), value.context()};
  }
  std::vector<Key> Keys() const override {
    const auto lock = Lock("keys");
    std::vector<Key> keys;
    keys.reserve(shared_->keys.entries().size());
    for (const auto& entry : shared_->keys.entries()) keys.push_back(entry->key);
    return keys;
  }
  StoreStats Stats() const override;
  void StartTrace() override {
    const auto lock = Lock("trace");
    trace_.Start();
  }
  void PauseTrace() override {
    const auto lock = Lock("trace");
    trace_.Pause();
  }
  TraceInfo WriteTrace(const std::string& file) override {
    {
      const auto lock = Lock("trace");
    }
    return Named("trace", [&] { return trace_.Write(file); });
  }
  void Close() override;

 private:
  // Counts a call of a verb, and its failure if f throws.
  //   called  the name by which errors know the verb
  template <typename F>
  void Counted(Verb verb, std::string_view called, F f) {
    verbs_.Called(verb);
    FailureCounted(verb, called, f);
  }
  template <typename F>
  void Counted(Verb verb, F f) {
    Counted(verb, Name(verb), f);
  }
  template <typename F>
  std::invoke_result_t<F&> CountedResult(Verb verb, std::string_view called, F f) {
    std::optional<std::invoke_result_t<F&>> result;
    Counted(verb, called, [&] { result = f(); });
    return *std::move(result);
  }
  // Counts only failures.  Run counts the call itself, under the lock that it takes anyway.
  template <typename F>
  void FailureCounted(Verb verb, std::string_view called, F f) {
    try {
      NamedWhereMemoryEnds(called, f);
    } catch (...) {
      verbs_.Failed(verb);
      throw;
    }
  }
  // Returns the lock.  Throws if the store is closed or was created before fork().
  std::unique_lock<std::mutex> Lock(std::string_view verb) const {
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

  std::string SaveAs(const char* verb, const std::string& path, Parts parts);
  SnapshotInfo LoadAs(const char* verb, const std::string& path, Parts parts);
  void Replace(std::string_view verb, std::shared_ptr<Updater> updater);
  void Erase(const KeyView& key);
  void WaitForCallsUnderWay(std::unique_lock<std::mutex>* lock);
  std::shared_ptr<Entry> MakeEntry(const KeyView& key, const NDArray& value) const;
  void InitAs(std::string_view verb, std::span<const InitItem> items);
  void CheckNew(std::string_view verb, std::span<const InitItem> items) const;
  void AssignAs(std::string_view verb, std::span<const InitItem> items);
  void ClaimCall(Verb counted, std::span<const PushItem> items, std::span<const PullItem> outs,
                 Claim* claim);
  void Gather(std::string_view verb, std::span<const PushItem> items, Claim* claim, PushPlan* push);
  static void Finish(PushPlan* push, LocalTrace::Call* traced);
  void RunPush(Verb counted, std::span<const PushItem> items);
  void RunPull(Verb counted, std::span<const PullItem> outs);
  void RunPushPull(std::span<const PushItem> items, std::span<const PullItem> outs);
  void RunPushRows(std::string_view verb, std::span<const RowsPushItem> items,
                   std::span<const PushItem> whole);
  void RunPullRows(std::string_view verb, std::span<const RowsPullItem> items);
  Entry& ClaimTable(std::string_view verb, const KeyView& key, Claim::Mode mode, Claim* claim);

  const std::string type_;
  const StoreOptions options_;
  // For rows of keys with bounded memory; null: no folder was given.
  std::shared_ptr<RowDisk> disk_;
  const unsigned birth_;
  const Clock::time_point begin_ = Clock::now();
  VerbCounts verbs_;
  LocalTrace trace_;
  LocalCompression compression_;
  const bool has_homes_;  // keys may have their home on a GPU
  const bool needs_gpus_;
  Homes homes_;
  std::unique_ptr<Shared> shared_;
};

// -------------------------------------------------------------------------------------------------
// init

void LocalStore::CheckNew(std::string_view verb, std::span<const InitItem> items) const {
  const auto& entries = shared_->keys.entries();
  std::vector<KeyView> keys;
  keys.reserve(items.size());
  for (const InitItem& item : items) {
    CheckMode(verb, item.key, item.mode);
    keys.push_back(item.key);
  }
  tkv::CheckNewKeys(
      verb, keys, entries.empty() ? std::nullopt : std::optional(entries.front()->key.is_string()),
      [&](const KeyView& key) { return shared_->keys.Find(key) != nullptr; });
}

std::shared_ptr<Entry> LocalStore::MakeEntry(const KeyView& key, const NDArray& value) const {
  value.storage()->WaitReadable(options_.patience);
  return std::make_shared<Entry>(key, IsOfDevice(value) ? value.WithContext({}) : value.Copy());
}

void LocalStore::InitAs(std::string_view verb, std::span<const InitItem> items) {
  for (const InitItem& item : items) CheckMade(verb, item.key, item.value);
  {
    const auto lock = Lock(verb);
    CheckNew(verb, items);
  }
  // Values are copied without the lock.  Another thread may create the key meanwhile, so the check
  // is repeated.
  std::vector<std::shared_ptr<Entry>> entries;
  entries.reserve(items.size());
  for (const InitItem& item : items) entries.push_back(MakeEntry(item.key, *item.value));
  const auto lock = Lock(verb);
  CheckNew(verb, items);
  for (auto& entry : entries) shared_->keys.Insert(std::move(entry));
}

void LocalStore::AssignAs(std::string_view verb, std::span<const InitItem> items) {
  const AssignedValues given(verb, items);
  Claim claim;
  ClaimKeys(verb, given.items(), {}, shared_.get(), options_, Lock(verb), &claim);
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

void LocalStore::Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) {
  Counted(Verb::kBroadcast, [&] {
    CheckBroadcast(items, outs);
    InitAs("broadcast", items);
    RunPull(Verb::kBroadcast, outs);
  });
}

void LocalStore::InitRows(std::span<const RowsInitItem> items, std::string_view verb) {
  Counted(Verb::kInit, verb, [&] {
    if (needs_gpus_) {
      throw Fail(
          Code::kUnimplemented,
          "{} {}: a store 'nccl' keeps no keys by rows, which GPUs do not update; 'device' does",
          verb, items.empty() ? "" : items[0].key.ToString());
    }
    std::vector<InitItem> keys;
    keys.reserve(items.size());
    for (const RowsInitItem& item : items) keys.push_back({item.key, nullptr, item.mode});
    {
      const auto lock = Lock(verb);
      CheckNew(verb, keys);
    }
    std::vector<std::shared_ptr<Entry>> entries;
    for (const RowsInitItem& item : items) {
      if (item.value == nullptr) {
        CheckNewRows(verb, item);
      } else {
        CheckMade(verb, item.key, item.value);
      }
    }
    for (const RowsInitItem& item : items) {
      entries.push_back(item.value == nullptr ? MakeRowsEntry(verb, item, options_.patience, disk_)
                                              : MakeEntry(item.key, *item.value));
    }
    const auto lock = Lock(verb);
    CheckNew(verb, keys);
    for (const auto& entry : entries) {
      if (!entry->by_rows() || entry->rows->own || shared_->updater->optimizer == nullptr) continue;
      CheckUpdatesRows(verb, entry->key.view(), *shared_->updater->optimizer,
                       Code::kInvalidArgument);
    }
    for (auto& entry : entries) shared_->keys.Insert(std::move(entry));
  });
}

// -------------------------------------------------------------------------------------------------
// run

void LocalStore::RunPushRows(std::string_view verb, std::span<const RowsPushItem> items,
                             std::span<const PushItem> whole) {
  auto lock = Lock(verb);
  verbs_.CalledWithLock(Verb::kPush);
  if (items.empty() && whole.empty())
    throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  Claim claim;
  ClaimRows(verb, items, whole, shared_.get(), options_, std::move(lock), &claim);
  std::vector<NDArray> kept;  // outlives the plan, which reads it
  PushPlan push(verb, &claim, &compression_, options_);
  if (has_homes_) homes_.PlaceOnHost(verb, &claim);
  push.SumRows(items, &kept);
  LocalTrace::Call traced(&trace_, claim);
  push.Gather(whole, items.size());
  Finish(&push, &traced);
  CountMoved(items, whole, claim);
}

// Claims a key that is kept by rows.
Entry& LocalStore::ClaimTable(std::string_view verb, const KeyView& key, Claim::Mode mode,
                              Claim* claim) {
  ClaimKey(verb, key, mode, shared_.get(), options_, Lock(verb), claim);
  Entry& entry = *claim->entries[0];
  CheckByRows(verb, key, entry.by_rows());
  return entry;
}

RowsExport LocalStore::ExportRows(const KeyView& key, const RowsFilter& filter) {
  constexpr const char* kVerb = "export_rows";
  return CountedResult(Verb::kPull, kVerb, [&] {
    std::optional<RowTable> table;  // a copy that shares pages; other calls may push to the key
    Shape row_shape;
    {
      Claim claim;
      const Entry& entry = ClaimTable(kVerb, key, Claim::Mode::kRead, &claim);
      CheckFilter(kVerb, key, filter, entry.rows->table.policy());
      CheckSince(kVerb, key, filter, entry.rows->table.version());
      table = entry.rows->table;
      row_shape = entry.rows->row_shape;
    }
    return NamingKey(kVerb, key, [&] {
      return ExportOf(row_shape, *table, filter, ThreadsFor(options_.threads));
    });
  });
}

void LocalStore::ImportRows(const KeyView& key, const Rows& rows) {
  constexpr const char* kVerb = "import_rows";
  Counted(Verb::kPush, kVerb, [&] {
    Claim claim;
    Entry& entry = ClaimTable(kVerb, key, Claim::Mode::kWrite, &claim);
    CheckRows(kVerb, key, &rows, {entry.rows->row_shape, entry.dtype(), entry.rows->row_count});
    RowTable table = WithRows(kVerb, entry, rows, options_.patience);
    entry.rows->table = std::move(table);
  });
}

TableStats LocalStore::StatsOfTable(const KeyView& key) {
  Claim claim;
  return ClaimTable("table_stats", key, Claim::Mode::kRead, &claim).rows->table.Stats();
}

void LocalStore::RunPullRows(std::string_view verb, std::span<const RowsPullItem> items) {
  auto lock = Lock(verb);
  verbs_.CalledWithLock(Verb::kPull);
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  Claim claim;
  ClaimRows(verb, items, shared_.get(), options_, std::move(lock), &claim);
  LocalTrace::Call traced(&trace_, claim);
  PullRowsOf(verb, claim, items, options_.patience, ThreadsFor(options_.threads));
  CountMoved(items, claim);
  traced.NotePull();
}

// Runs f after a push; adds to its errors that the push has taken effect.
template <typename F>
static void AfterPush(std::string_view verb, F f) {
  try {
    NamedWhereMemoryEnds(verb, f);
  } catch (const Error& error) {
    throw Fail(error.code(), "{}; what the call has pushed counts", error.what());
  }
}

// Claims the keys of a call with whole values, and counts the call under the lock that it takes.
void LocalStore::ClaimCall(Verb counted, std::span<const PushItem> items,
                           std::span<const PullItem> outs, Claim* claim) {
  const std::string_view verb = Name(counted);
  auto lock = Lock(verb);
  if (counted != Verb::kBroadcast) verbs_.CalledWithLock(counted);
  if (items.empty() && outs.empty())
    throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  if (needs_gpus_) CheckOnGpus(verb, items, outs);
  ClaimKeys(verb, items, outs, shared_.get(), options_, std::move(lock), claim);
}

// Moves the keys of a push to the devices that sum them, and takes the arrays of the push.
void LocalStore::Gather(std::string_view verb, std::span<const PushItem> items, Claim* claim,
                        PushPlan* push) {
  if (has_homes_ && homes_.Concern(items)) homes_.Place(verb, items, push->NeedsHost(), claim);
  push->Gather(items);
}

void LocalStore::Finish(PushPlan* push, LocalTrace::Call* traced) {
  push->Prepare();
  push->Enter();
  push->Run();
  push->Commit();
  traced->NotePush();
  push->CheckComplete();
}

void LocalStore::RunPush(Verb counted, std::span<const PushItem> items) {
  const std::string_view verb = Name(counted);
  Claim claim;
  ClaimCall(counted, items, {}, &claim);
  PushPlan push(verb, &claim, &compression_, options_);
  Gather(verb, items, &claim, &push);
  LocalTrace::Call traced(&trace_, claim);
  Finish(&push, &traced);
  CountMoved(items, {}, claim);
}

void LocalStore::RunPull(Verb counted, std::span<const PullItem> outs) {
  const std::string_view verb = Name(counted);
  Claim claim;
  ClaimCall(counted, {}, outs, &claim);
  if (has_homes_ && homes_.Concern({})) homes_.Place(verb, {}, {}, &claim);
  PullPlan pull(verb, claim, outs, options_);
  LocalTrace::Call traced(&trace_, claim);
  pull.Choose();
  pull.Prepare();
  pull.Run();
  CountMoved({}, outs, claim);
  traced.NotePull();
}

void LocalStore::RunPushPull(std::span<const PushItem> items, std::span<const PullItem> outs) {
  constexpr Verb kVerb = Verb::kPushPull;
  if (outs.empty()) return RunPush(kVerb, items);
  if (items.empty()) return RunPull(kVerb, outs);
  const std::string_view verb = Name(kVerb);
  Claim claim;
  ClaimCall(kVerb, items, outs, &claim);
  PushPlan push(verb, &claim, &compression_, options_);
  Gather(verb, items, &claim, &push);
  PullPlan pull(verb, claim, outs, options_);
  LocalTrace::Call traced(&trace_, claim);
  if (pull.CanJoin(items, push.sources())) {
    push.WriteTo(pull.outputs());
    pull.JoinPush();
  } else {
    pull.Choose();
  }
  // The resources of the pull are allocated before the push changes values, so that a failure
  // changes nothing.
  if (!push.ReplacesArrays()) pull.Prepare();
  Finish(&push, &traced);
  AfterPush(verb, [&] { pull.Run(); });
  CountMoved(items, outs, claim);
  traced.NotePull();
}

void LocalStore::SetGradientCompression(const Compression& compression, const std::string& keys) {
  {
    const auto lock = Lock("set_gradient_compression");
  }
  if (!has_homes_) {
    throw Fail(Code::kFailedPrecondition,
               "set_gradient_compression: the store '{}' sends nothing; 'device' and distributed "
               "stores do",
               type_);
  }
  compression_.Set(compression, keys);
}

// -------------------------------------------------------------------------------------------------
// other

// Replaces the updater.  The old one is freed after the store's lock is released.  Freeing it may
// need a lock of the user (Python's GIL), and a thread with that lock may be waiting for the
// store's.
void LocalStore::Replace(std::string_view verb, std::shared_ptr<Updater> updater) {
  const auto lock = Lock(verb);
  std::swap(shared_->updater, updater);
}

void LocalStore::SetUpdaterWithStates(UpdateFunction updater, UpdateEnd end, UpdaterStates states,
                                      SumType sums) {
  Counted(Verb::kSetUpdater, [&] {
    auto replacement = std::make_shared<Updater>();
    replacement->function = std::move(updater);
    replacement->end = std::move(end);
    replacement->states = std::move(states);
    replacement->sums = sums;
    Replace("set_updater", std::move(replacement));
  });
}

void LocalStore::SetOptimizer(std::shared_ptr<const Optimizer> optimizer) {
  Counted(Verb::kSetOptimizer, [&] {
    if (optimizer == nullptr) {
      throw Fail(Code::kInvalidArgument, "set_optimizer: there is no optimizer");
    }
    auto replacement = std::make_shared<Updater>();
    replacement->optimizer = std::move(optimizer);
    const auto lock = Lock("set_optimizer");
    std::vector<Key> keys;
    for (const auto& entry : shared_->keys.entries()) keys.push_back(entry->key);
    const Updater& before = *shared_->updater;
    if (before.optimizer != nullptr && DoSame(*before.optimizer, *replacement->optimizer, keys)) {
      replacement->first_optimizer = before.StateOf();
    }
    for (const auto& entry : shared_->keys.entries()) {
      if (!entry->by_rows() || entry->rows->own) continue;
      CheckUpdatesRows("set_optimizer", entry->key.view(), *replacement->optimizer,
                       Code::kFailedPrecondition);
    }
    // The old updater is freed after the lock is released.
    std::swap(shared_->updater, replacement);
  });
}

// -------------------------------------------------------------------------------------------------
// on disk

std::string LocalStore::SaveAs(const char* verb, const std::string& path, Parts parts) {
  return Named(verb, [&] {
    Claim claim;
    ClaimAllKeys(verb, Claim::Mode::kRead, shared_.get(), options_, Lock(verb), &claim);
    return SaveKeys(claim, path, parts, options_);
  });
}

KVStore::SnapshotInfo LocalStore::LoadAs(const char* verb, const std::string& path, Parts parts) {
  return Named(verb, [&] {
    {
      const auto lock = Lock(verb);
    }
    const checkpoint::Reader reader = OpenSnapshot(path, 0, options_);
    Claim claim;
    ClaimAllKeys(verb, Claim::Mode::kWrite, shared_.get(), options_, Lock(verb), &claim);
    LoadKeys(reader, parts, &claim);
    return InfoOf(reader);
  });
}

void LocalStore::Delete(const KeyView& key) {
  Counted(Verb::kDelete, [&] { Erase(key); });
}

void LocalStore::Erase(const KeyView& key) {
  auto lock = Lock("delete");
  Entry* entry = &shared_->keys.Get("delete", key);
  if (entry->is_written && entry->writer == std::this_thread::get_id()) {
    throw Fail(Code::kFailedPrecondition, "delete {}: the updater that is running is updating it",
               key.ToString());
  }
  WaitForKeys(shared_.get(), options_, "delete", &lock, [&]() -> const Key* {
    entry = shared_->keys.Find(key);  // null if another thread has deleted the key meanwhile
    const bool is_free = entry == nullptr || (!entry->is_written && entry->readers == 0);
    return is_free || shared_->Refuses() ? nullptr : &entry->key;
  });
  shared_->CheckOpen("delete");
  if (entry == nullptr) {
    throw Fail(Code::kNotFound, "delete {}: no such key", key.ToString());
  }
  entry->is_deleted = true;
  homes_.Forget(*entry);
  const KeyStats stats = entry->Stats();
  shared_->deleted.rounds += stats.rounds;
  shared_->deleted.bytes += stats.bytes;
  shared_->keys.Erase(key);
  shared_->released.notify_all();
}

StoreStats LocalStore::Stats() const {
  const auto lock = Lock("stats");
  StoreStats stats;
  stats.age_seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  verbs_.AddTo(&stats);
  shared_->waits.AddTo(&stats);
  std::vector<KeyStats> keys;
  keys.reserve(shared_->keys.entries().size());
  for (const auto& entry : shared_->keys.entries()) keys.push_back(entry->Stats());
  AddKeys(std::move(keys), shared_->deleted, &stats);
  return stats;
}

// Waits for calls that use a key.  Calls that wait for a key fail immediately.
void LocalStore::WaitForCallsUnderWay(std::unique_lock<std::mutex>* lock) {
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

void LocalStore::Close() {
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

}  // namespace

std::unique_ptr<KVStore> MakeLocalStore(std::string type, const StoreOptions& options) {
  if (options.threads < 0) {
    throw Fail(Code::kInvalidArgument, "create: threads is {}, at least 0 is needed",
               options.threads);
  }
  if (options.patience.count() <= 0) {
    throw Fail(Code::kInvalidArgument, "create: the patience is {} ms, more than 0 is needed",
               options.patience.count());
  }
  if (FindStoreType(type)->kind == StoreType::Kind::kGpus) {
    try {
      CheckUsable(Context::Gpu(0));
    } catch (const Error& error) {
      throw Fail(error.code(), "create '{}': {}; 'device' sums on the host where it has to", type,
                 error.what());
    }
  }
  return std::make_unique<LocalStore>(std::move(type), options);
}

}  // namespace tkv
