#include "store/local_store.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/format.h"
#include "base/memory_error.h"
#include "store/checks.h"
#include "store/claim.h"
#include "store/home.h"
#include "store/local_compression.h"
#include "store/local_keys.h"
#include "store/local_rows.h"
#include "store/local_snapshots.h"
#include "store/local_trace.h"
#include "store/pull_plan.h"
#include "store/push_plan.h"
#include "store/rows_export.h"
#include "store/snapshots.h"
#include "store/types.h"
#include "update/parallel.h"

namespace tkv {
namespace {

using Clock = std::chrono::steady_clock;

// A store of one process.
class LocalStore final : public KVStore, public SavesUpdaterStates, public RestoresSnapshots {
 public:
  LocalStore(std::string type, const StoreOptions& options)
      : type_(std::move(type)),
        options_(options),
        has_homes_(FindStoreType(type_)->kind != StoreType::Kind::kLocal),
        needs_gpus_(FindStoreType(type_)->kind == StoreType::Kind::kGpus),
        keys_(options_) {}

  void Init(std::span<const InitItem> items) override {
    Counted(Verb::kInit, [&] { keys_.Create("init", items); });
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
    Counted(Verb::kInit, "assign", [&] { keys_.Assign("assign", items); });
  }
  void Delete(const KeyView& key) override {
    Counted(Verb::kDelete, [&] { keys_.Delete(key, &homes_); });
  }
  uint64_t Round(const KeyView& key) const override {
    const auto lock = keys_.Lock("round");
    return keys_.shared()->keys.Get("round", key).rounds;
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

  SnapshotInfo Run(const RestoreSteps& steps) override;

  std::string type() const override { return type_; }
  int rank() const override { return 0; }
  int num_workers() const override { return 1; }
  void Barrier() override {
    Counted(Verb::kBarrier, [&] { keys_.Lock("barrier"); });
  }

  size_t size() const override {
    const auto lock = keys_.Lock("len");
    return keys_.shared()->keys.entries().size();
  }
  bool Contains(const KeyView& key) const override {
    const auto lock = keys_.Lock("in");
    return keys_.shared()->keys.Find(key) != nullptr;
  }
  KeyInfo Describe(const KeyView& key, std::string_view verb) const override {
    return keys_.Describe(verb, key);
  }
  std::vector<Key> Keys() const override { return keys_.Names("keys"); }
  StoreStats Stats() const override;
  void StartTrace() override {
    const auto lock = keys_.Lock("trace");
    trace_.Start();
  }
  void PauseTrace() override {
    const auto lock = keys_.Lock("trace");
    trace_.Pause();
  }
  TraceInfo WriteTrace(const std::string& file) override {
    {
      const auto lock = keys_.Lock("trace");
    }
    return Named("trace", [&] { return trace_.Write(file); });
  }
  void Close() override { keys_.Close(); }

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
  std::string SaveAs(const char* verb, const std::string& path, Parts parts);
  SnapshotInfo LoadAs(const char* verb, const std::string& path, Parts parts);
  void ClaimCall(Verb counted, std::span<const PushItem> items, std::span<const PullItem> outs,
                 Claim* claim);
  void Gather(std::span<const PushItem> items, Claim* claim, PushPlan* push);
  static void Finish(PushPlan* push, LocalTrace::Call* traced);
  void RunPush(Verb counted, std::span<const PushItem> items);
  void RunPull(Verb counted, std::span<const PullItem> outs);
  void RunPushPull(std::span<const PushItem> items, std::span<const PullItem> outs);
  void RunPushRows(std::string_view verb, std::span<const RowsPushItem> items,
                   std::span<const PushItem> whole);
  void RunPullRows(std::string_view verb, std::span<const RowsPullItem> items);
  Entry& ClaimTable(const KeyView& key, Claim::Mode mode, Claim* claim);

  const std::string type_;
  const StoreOptions options_;
  const Clock::time_point begin_ = Clock::now();
  VerbCounts verbs_;
  LocalTrace trace_;
  LocalCompression compression_;
  const bool has_homes_;  // keys may have their home on a GPU
  const bool needs_gpus_;
  Homes homes_;
  LocalKeys keys_;
};

// -------------------------------------------------------------------------------------------------
// init

// Pulls the keys before it adds them to the store, so that a failure creates none.
void LocalStore::Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) {
  constexpr const char* kVerb = "broadcast";
  Counted(Verb::kBroadcast, [&] {
    CheckBroadcast(items, outs);
    if (needs_gpus_) CheckOnGpus(kVerb, {}, outs);
    const auto entries = keys_.Make(kVerb, items);
    Claim claim = keys_.NewClaim(kVerb);
    PutNewKeys(items, entries, outs, &claim);
    PullPlan pull(claim, outs);
    LocalTrace::Call traced(&trace_, claim);
    pull.Choose();
    pull.Prepare();
    pull.Run();
    CountTransfers({}, outs, claim);
    keys_.Add(kVerb, items, entries);
    traced.NotePull();
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
    keys_.Create(verb, items);
  });
}

// -------------------------------------------------------------------------------------------------
// run

void LocalStore::RunPushRows(std::string_view verb, std::span<const RowsPushItem> items,
                             std::span<const PushItem> whole) {
  auto lock = keys_.Lock(verb);
  verbs_.CalledWithLock(Verb::kPush);
  if (items.empty() && whole.empty())
    throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  Claim claim = keys_.NewClaim(verb);
  ClaimRows(items, whole, std::move(lock), &claim);
  std::vector<NDArray> kept;  // outlives the plan, which reads it
  PushPlan push(&claim, &compression_);
  if (has_homes_) homes_.PlaceOnHost(&claim);
  push.SumRows(items, &kept);
  LocalTrace::Call traced(&trace_, claim);
  push.Gather(whole, items.size());
  Finish(&push, &traced);
  CountTransfers(items, whole, claim);
}

// Claims a key that is kept by rows.
Entry& LocalStore::ClaimTable(const KeyView& key, Claim::Mode mode, Claim* claim) {
  ClaimKey(key, mode, keys_.Lock(claim->verb), claim);
  Entry& entry = *claim->entries[0];
  CheckByRows(claim->verb, key, entry.by_rows());
  return entry;
}

RowsExport LocalStore::ExportRows(const KeyView& key, const RowsFilter& filter) {
  constexpr const char* kVerb = "export_rows";
  return CountedResult(Verb::kPull, kVerb, [&] {
    std::optional<RowTable> table;  // a copy that shares pages; other calls may push to the key
    Shape row_shape;
    {
      Claim claim = keys_.NewClaim(kVerb);
      const Entry& entry = ClaimTable(key, Claim::Mode::kRead, &claim);
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
    Claim claim = keys_.NewClaim(kVerb);
    Entry& entry = ClaimTable(key, Claim::Mode::kWrite, &claim);
    CheckRows(kVerb, key, &rows, {entry.rows->row_shape, entry.dtype(), entry.rows->row_count});
    RowTable table = WithRows(kVerb, entry, rows, options_.patience);
    entry.rows->table = std::move(table);
  });
}

TableStats LocalStore::StatsOfTable(const KeyView& key) {
  Claim claim = keys_.NewClaim("table_stats");
  return ClaimTable(key, Claim::Mode::kRead, &claim).rows->table.Stats();
}

void LocalStore::RunPullRows(std::string_view verb, std::span<const RowsPullItem> items) {
  auto lock = keys_.Lock(verb);
  verbs_.CalledWithLock(Verb::kPull);
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  Claim claim = keys_.NewClaim(verb);
  ClaimRows(items, std::move(lock), &claim);
  LocalTrace::Call traced(&trace_, claim);
  PullRowsOf(claim, items);
  CountTransfers(items, claim);
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
  auto lock = keys_.Lock(verb);
  verbs_.CalledWithLock(counted);
  if (items.empty() && outs.empty())
    throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  if (needs_gpus_) CheckOnGpus(verb, items, outs);
  ClaimKeys(items, outs, std::move(lock), claim);
}

// Moves the keys of a push to the devices that sum them, and takes the arrays of the push.
void LocalStore::Gather(std::span<const PushItem> items, Claim* claim, PushPlan* push) {
  if (has_homes_ && homes_.Concern(items)) homes_.Place(items, push->NeedsHost(), claim);
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
  Claim claim = keys_.NewClaim(verb);
  ClaimCall(counted, items, {}, &claim);
  PushPlan push(&claim, &compression_);
  Gather(items, &claim, &push);
  LocalTrace::Call traced(&trace_, claim);
  Finish(&push, &traced);
  CountTransfers(items, {}, claim);
}

void LocalStore::RunPull(Verb counted, std::span<const PullItem> outs) {
  const std::string_view verb = Name(counted);
  Claim claim = keys_.NewClaim(verb);
  ClaimCall(counted, {}, outs, &claim);
  if (has_homes_ && homes_.Concern({})) homes_.Place({}, {}, &claim);
  PullPlan pull(claim, outs);
  LocalTrace::Call traced(&trace_, claim);
  pull.Choose();
  pull.Prepare();
  pull.Run();
  CountTransfers({}, outs, claim);
  traced.NotePull();
}

void LocalStore::RunPushPull(std::span<const PushItem> items, std::span<const PullItem> outs) {
  constexpr Verb kVerb = Verb::kPushPull;
  if (outs.empty()) return RunPush(kVerb, items);
  if (items.empty()) return RunPull(kVerb, outs);
  const std::string_view verb = Name(kVerb);
  Claim claim = keys_.NewClaim(verb);
  ClaimCall(kVerb, items, outs, &claim);
  PushPlan push(&claim, &compression_);
  Gather(items, &claim, &push);
  PullPlan pull(claim, outs);
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
  CountTransfers(items, outs, claim);
  traced.NotePull();
}

void LocalStore::SetGradientCompression(const Compression& compression, const std::string& keys) {
  {
    const auto lock = keys_.Lock("set_gradient_compression");
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

void LocalStore::SetUpdaterWithStates(UpdateFunction updater, UpdateEnd end, UpdaterStates states,
                                      SumType sums) {
  Counted(Verb::kSetUpdater, [&] {
    auto replacement = std::make_shared<Updater>();
    replacement->function = std::move(updater);
    replacement->end = std::move(end);
    replacement->states = std::move(states);
    replacement->sums = sums;
    keys_.SetUpdater("set_updater", std::move(replacement));
  });
}

void LocalStore::SetOptimizer(std::shared_ptr<const Optimizer> optimizer) {
  Counted(Verb::kSetOptimizer, [&] {
    if (optimizer == nullptr) {
      throw Fail(Code::kInvalidArgument, "set_optimizer: there is no optimizer");
    }
    keys_.SetOptimizer("set_optimizer", std::move(optimizer));
  });
}

// -------------------------------------------------------------------------------------------------
// on disk

std::string LocalStore::SaveAs(const char* verb, const std::string& path, Parts parts) {
  return Named(verb, [&] {
    Claim claim = keys_.NewClaim(verb);
    ClaimAllKeys(Claim::Mode::kRead, keys_.Lock(verb), &claim);
    return SaveKeys(claim, path, parts);
  });
}

KVStore::SnapshotInfo LocalStore::LoadAs(const char* verb, const std::string& path, Parts parts) {
  return Named(verb, [&] {
    {
      const auto lock = keys_.Lock(verb);
    }
    const checkpoint::Reader reader = OpenSnapshot(path, number(), options_);
    SnapshotInfo info = InfoOf(reader);  // needs memory, which a load that is done may not
    Claim claim = keys_.NewClaim(verb);
    ClaimAllKeys(Claim::Mode::kWrite, keys_.Lock(verb), &claim);
    LoadKeys(reader, parts, &claim);
    return info;
  });
}

// Undoes what a failed restore has created.
KVStore::SnapshotInfo LocalStore::Run(const RestoreSteps& steps) {
  constexpr const char* kVerb = "restore";
  steps.check();
  std::shared_ptr<Updater> before;
  {
    const auto lock = keys_.Lock(kVerb);
    before = keys_.shared()->updater;
  }
  const auto undo = [](auto f) {
    try {
      f();
    } catch (const std::exception& error) {
      static_cast<void>(error);  // the store is closed, or a thread has deleted or uses the key
    }
  };
  try {
    return steps.create();
  } catch (...) {
    for (const SavedKey& key : steps.created()) {
      undo([&] { keys_.Delete(key.key.view(), &homes_); });
    }
    undo([&] { keys_.SetUpdater(kVerb, before); });
    throw;
  }
}

StoreStats LocalStore::Stats() const {
  const auto lock = keys_.Lock("stats");
  StoreStats stats;
  stats.age_seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  verbs_.AddTo(&stats);
  keys_.AddTo(&stats);
  return stats;
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
