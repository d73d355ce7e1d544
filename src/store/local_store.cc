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
#include "store/gather.h"
#include "store/gpu_calls.h"
#include "store/home.h"
#include "store/local_compression.h"
#include "store/local_rows.h"
#include "store/local_snapshots.h"
#include "store/local_trace.h"
#include "store/pull_plan.h"
#include "store/rows_export.h"
#include "store/snapshots.h"
#include "store/types.h"
#include "tkv/ops.h"
#include "update/gpu_jobs.h"
#include "update/parallel.h"
#include "update/program_body.h"
#include "update/random.h"
#include "update/state.h"
#include "update/tile_driver.h"

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
    FailureCounted(Verb::kPush, "push", [&] { Run(Verb::kPush, items, {}); });
  }
  void Pull(std::span<const PullItem> items) override {
    FailureCounted(Verb::kPull, "pull", [&] { Run(Verb::kPull, {}, items); });
  }
  void PushPull(std::span<const PushItem> items, std::span<const PullItem> outs) override {
    FailureCounted(Verb::kPushPull, "pushpull", [&] { Run(Verb::kPushPull, items, outs); });
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
  void Run(Verb counted, std::span<const PushItem> items, std::span<const PullItem> outs);
  void PlaceValues(std::string_view verb, std::span<const PushItem> items,
                   const LocalCompression::Plan& plan, Claim* claim);
  void RunFunction(std::string_view verb, const Claim& claim, size_t push_count,
                   const Sources& sources);
  std::optional<Error> RunTiles(std::string_view verb, const Claim& claim, size_t push_count,
                                const Sources& sources, const Outputs* fused_outputs,
                                RowSums rows = {});
  void RunPushRows(std::string_view verb, std::span<const RowsPushItem> items,
                   std::span<const PushItem> whole);
  std::optional<Error> Update(std::string_view verb, const Claim& claim, size_t push_count,
                              bool runs_function, const LocalCompression::Plan& plan,
                              Sources* sources, const Outputs* fused_outputs, RowSums rows);
  void RunPullRows(std::string_view verb, std::span<const RowsPullItem> items);
  Entry& ClaimTable(std::string_view verb, const KeyView& key, Claim::Mode mode, Claim* claim);
  void AssignMany(std::string_view verb, const Claim& claim, size_t push_count,
                  const Sources& sources, const Outputs* fused_outputs);

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
  std::atomic<bool> has_warned_of_lost_ = false;
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
    Run(Verb::kBroadcast, {}, outs);
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

static void CheckSum(std::string_view verb, const Entry& entry, size_t values) {
  if (IsArithmetic(entry.dtype()) || values <= 1) return;
  throw Fail(Code::kInvalidArgument, "{} {}: {} values cannot be summed or updated", verb,
             entry.key.view().ToString(), Name(entry.dtype()));
}

// Returns true if the updater of the call is a function.  Throws if the function would have to
// update a key kept by rows, which may be too large for an array.
static bool RunsFunction(std::string_view verb, const Claim& claim,
                         std::span<const size_t> push_groups) {
  if (!claim.updater->function) return false;
  if (!claim.has_rows) return true;
  size_t own = 0;
  for (const size_t group : push_groups) {
    const Entry& entry = *claim.entries[group];
    if (!entry.by_rows()) continue;
    if (!entry.rows->own) {
      throw Fail(Code::kUnimplemented,
                 "{} {}: the updater is a function, and the key is kept by rows, which only an "
                 "optimizer updates; set_optimizer sets one, and init_table(optimizer=)",
                 verb, entry.key.view().ToString());
    }
    ++own;
  }
  if (own == 0 || own == push_groups.size()) return own == 0;
  throw Fail(Code::kUnimplemented,
             "{}: tables with optimizers of their own and keys whose updater is a function; push "
             "them by calls of their own",
             verb);
}

void LocalStore::RunPushRows(std::string_view verb, std::span<const RowsPushItem> items,
                             std::span<const PushItem> whole) {
  auto lock = Lock(verb);
  verbs_.CalledWithLock(Verb::kPush);
  if (items.empty() && whole.empty())
    throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  Claim claim;
  ClaimRows(verb, items, whole, shared_.get(), options_, std::move(lock), &claim);
  const bool runs_function =
      RunsFunction(verb, claim, {claim.push_groups.data(), claim.push_groups.size()});
  if (has_homes_) homes_.PlaceOnHost(verb, &claim);
  std::vector<NDArray> kept;
  RowSums rows = SumRows(verb, items, claim, options_.patience, &kept);
  LocalTrace::Call traced(&trace_, claim);
  const std::shared_ptr<const Optimizer>& optimizer = claim.updater->optimizer;
  const bool is_lazy =
      optimizer != nullptr && optimizer->lazy() && !NeedsWholeValue(optimizer->program());
  Sources sources = Gather(verb, whole, claim, options_.patience, items.size());
  sources.bases.resize(claim.entries.size());
  for (size_t g = 0; g < claim.entries.size(); ++g) {
    const Entry& entry = *claim.entries[g];
    if (!rows[g] || entry.by_rows() || (is_lazy && IsArithmetic(entry.dtype()))) continue;
    sources.bases[g] =
        NamingKey(verb, entry.key.view(), [&] { return SpreadOut(entry, *rows[g]); });
    rows[g].reset();
  }
  Update(verb, claim, claim.entries.size(), runs_function,
         compression_.PlanOf({claim.entries.data(), claim.entries.size()}), &sources, nullptr,
         std::move(rows));
  claim.pushed_keys = claim.entries.size();
  CountMoved(items, whole, claim);
  traced.Note(Span::Kind::kPush, claim.push_groups);
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
  traced.Note(Span::Kind::kPull, claim.pull_groups);
}

// Sums the input of the first keys of the call, from `rows` or `sources`, after compression, and
// runs the updater on it.
//   returns  as RunTiles
std::optional<Error> LocalStore::Update(std::string_view verb, const Claim& claim,
                                        size_t push_count, bool runs_function,
                                        const LocalCompression::Plan& plan, Sources* sources,
                                        const Outputs* fused_outputs, RowSums rows) {
  std::optional<Error> late;
  LocalCompression::Owed owed;
  if (!plan.empty()) {
    owed = LocalCompression::Apply(verb, {claim.entries.data(), push_count}, plan, sources,
                                   ThreadsFor(options_.threads));
  }
  if (runs_function) {
    RunFunction(verb, claim, push_count, *sources);
  } else {
    if (claim.has_rows) rows.resize(push_count);
    for (size_t g = 0; g < rows.size(); ++g) {
      const Entry& entry = *claim.entries[g];
      if (rows[g] || !entry.by_rows()) continue;
      CheckSum(verb, entry, sources->of(g).size());
      rows[g] = SumArrays(entry, sources->of(g));
    }
    late = RunTiles(verb, claim, push_count, *sources, fused_outputs, std::move(rows));
  }
  if (owed.lost > 0 && options_.log && !has_warned_of_lost_.exchange(true)) {
    options_.log(2, Format("{}: {} elements are not finite; compressed, they count as 0 but for "
                           "fp16 and bf16 (said once)",
                           verb, owed.lost));
  }
  std::move(owed).Keep();
  return late;
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

void LocalStore::Run(Verb counted, std::span<const PushItem> items,
                     std::span<const PullItem> outs) {
  const std::string_view verb = Name(counted);
  auto lock = Lock(verb);
  if (counted != Verb::kBroadcast) verbs_.CalledWithLock(counted);
  if (items.empty() && outs.empty())
    throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  if (needs_gpus_) CheckOnGpus(verb, items, outs);
  Claim claim;
  ClaimKeys(verb, items, outs, shared_.get(), options_, std::move(lock), &claim);
  const bool runs_function =
      RunsFunction(verb, claim, {claim.push_groups.data(), claim.push_groups.size()});
  // Keys that only have outputs follow the pushed keys.
  const size_t push_count =
      items.empty() ? 0 : *std::max_element(claim.push_groups.begin(), claim.push_groups.end()) + 1;
  const LocalCompression::Plan plan = compression_.PlanOf({claim.entries.data(), push_count});
  if (has_homes_ && homes_.Concern(items)) PlaceValues(verb, items, plan, &claim);
  Sources sources = Gather(verb, items, claim, options_.patience);
  PullPlan pull(verb, claim, outs, options_);
  const bool fuse = push_count > 0 && !outs.empty() && pull.CanJoin(items, sources);
  LocalTrace::Call traced(&trace_, claim);
  fuse ? pull.JoinPush() : pull.Choose();
  // Resources of GPU pulls are allocated before the push changes values, so that a failure changes
  // nothing.  A function replaces the values, so then they are allocated after it.
  if (!runs_function) pull.Prepare();
  std::optional<Error> late;
  if (push_count > 0) {
    late = Update(verb, claim, push_count, runs_function, plan, &sources,
                  fuse ? &pull.outputs() : nullptr, {});
  }
  claim.pushed_keys = push_count;
  if (push_count > 0) traced.Note(Span::Kind::kPush, claim.push_groups);
  if (late) {
    throw Fail(late->code(), "{}; what the call has pushed to other keys counts", late->what());
  }
  if (push_count > 0) {
    AfterPush(verb, [&] { pull.Run(); });
  } else {
    pull.Run();
  }
  CountMoved(items, outs, claim);
  if (!outs.empty()) traced.Note(Span::Kind::kPull, claim.pull_groups);
}

// Moves the values of a call to the devices that sum and update them.
void LocalStore::PlaceValues(std::string_view verb, std::span<const PushItem> items,
                             const LocalCompression::Plan& plan, Claim* claim) {
  const Updater& updater = *claim->updater;
  const bool has_kernel = updater.optimizer == nullptr || HasKernel(updater.optimizer->program());
  homes_.Place(
      verb, items, [&](size_t group) { return !has_kernel || (!plan.empty() && plan[group]); },
      claim);
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

// Tells the user's function how the call ended: as a failure, unless `kept` is set before the scope
// ends.
class UpdateScope {
 public:
  explicit UpdateScope(const UpdateEnd& end) : end_(end) {}
  ~UpdateScope() {
    if (end_) end_(returned, kept);
  }
  UpdateScope(const UpdateScope&) = delete;
  UpdateScope& operator=(const UpdateScope&) = delete;

  size_t returned = 0;
  bool kept = false;

 private:
  const UpdateEnd& end_;
};

// Runs the user's function on copies, which replace the values when every key is done.
void LocalStore::RunFunction(std::string_view verb, const Claim& claim, size_t push_count,
                             const Sources& sources) {
  const int threads = ThreadsFor(options_.threads);
  std::vector<NDArray> updated;
  UpdateScope scope(claim.updater->end);
  for (size_t g = 0; g < push_count; ++g) {
    const Entry& entry = *claim.entries[g];
    const auto naming = [&](auto make) { return NamingKey(verb, entry.key.view(), make); };
    const DType dtype = entry.value.dtype();
    const DType type = claim.updater->sums == SumType::kWide ? ComputeType(dtype) : dtype;
    const NDArray sum =
        naming([&] { return NDArray::Empty(entry.value.shape(), type, entry.value.context()); });
    TileJob job;
    job.dtype = dtype;
    job.is_wide = type != dtype;
    job.count = static_cast<size_t>(sum.size());
    sources.GiveTo(g, &job);
    job.value = sum.data();
    RunAtHome(verb, entry, job, threads, [&](GpuBatch* batch) {
      for (const Lent& one : sources.lent) {
        if (one.of == g) batch->Reads(one.storage);
      }
      batch->Writes(sum);
    });
    const NDArray stored = naming([&] { return entry.value.Copy(); });
    try {
      claim.updater->function(entry.key.view(), sum, stored);
    } catch (const std::bad_alloc&) {
      throw Fail(Code::kResourceExhausted, "{} {}: no memory for the updater", verb,
                 entry.key.view().ToString());
    }
    ++scope.returned;
    // If user code kept its handle, it must not be able to change the store later.
    const bool is_kept = stored.storage().use_count() > 1;
    updated.push_back(is_kept ? naming([&] { return stored.Copy(); }) : stored);
  }
  {
    // Other calls read the shape of a value before they wait for its key.  The old values are freed
    // with `updated`, after the lock is released.
    std::lock_guard lock(shared_->mutex);
    for (size_t g = 0; g < push_count; ++g) std::swap(claim.entries[g]->value, updated[g]);
  }
  scope.kept = true;
}

// The state for a key that has no state of this optimizer yet, made before anything changes.
struct FreshState {
  size_t group;
  UpdateState<NDArray> state;
};

UpdateState<NDArray> StateFor(const Entry& entry,
                              const std::shared_ptr<const Optimizer>& optimizer) {
  const NDArray& value = entry.value;
  if (IsOnGpu(entry)) return StateOnGpu(value, *optimizer);
  return PrepareState<NDArray>(
      optimizer->program(), 0, optimizer->multi_precision(), value.dtype(), value.data(),
      static_cast<size_t>(value.size()), [&](bool is_array) {
        const NDArray made =
            is_array ? NDArray::Empty(value.shape(), ComputeType(value.dtype()), value.context())
                     : NDArray::Empty({1}, DType::kF64, value.context());
        return std::pair(made, made.data());
      });
}

// Returns true if a call has so many small keys that a list of their jobs would leave the cache
// before they run.
static bool AreManySmall(const Claim& claim, size_t count, const Sources& sources) {
  if (count < 1024 || claim.has_rows || claim.has_gpus || !sources.bases.empty() ||
      claim.largest_bytes > (size_t{64} << 10))
    return false;
  size_t most = 1;
  for (size_t g = 0; g < count && sources.pointers.size() > count; ++g) {
    most = std::max(most, sources.of(g).size());
  }
  return most <= kFewSources;
}

void LocalStore::AssignMany(std::string_view verb, const Claim& claim, size_t push_count,
                            const Sources& sources, const Outputs* fused_outputs) {
  if (sources.pointers.size() > push_count) {
    for (size_t g = 0; g < push_count; ++g) CheckSum(verb, *claim.entries[g], sources.of(g).size());
  }
  RunSmallJobs(push_count, 2 * claim.pushed_bytes + claim.pulled_bytes,
               ThreadsFor(options_.threads), [&](size_t g) {
                 const NDArray& value = claim.entries[g]->value;
                 TileJob job;
                 job.dtype = value.dtype();
                 job.count = static_cast<size_t>(value.size());
                 job.sources = sources.of(g);
                 job.value = value.data();
                 if (fused_outputs != nullptr) job.outputs = fused_outputs->of(g);
                 return job;
               });
}

static std::unique_ptr<RowsPush> PrepareRows(std::string_view verb, Entry* entry, SparseSum sum,
                                             Updater* updater) {
  return NamingKey(verb, entry->key.view(), [&] {
    if (entry->rows->own) updater = entry->rows->own.get();
    return std::make_unique<RowsPush>(entry, std::move(sum), updater->optimizer, updater);
  });
}

// Moves a job whose key's home is a GPU to the launch there.  The job that is left for the host is
// empty.
//   all, master  the state of the key, which the job writes
static void GiveToGpu(const Entry& entry, std::span<const double> params, double round,
                      const std::vector<NDArray>& all, const NDArray& master, GpuBatches* gpus,
                      TileJob* job) {
  GpuBatch& batch = gpus->Of(entry.value);
  batch.Names(entry.key.view());
  batch.Add(*job, params, round);
  batch.Writes(entry.value);
  const size_t arrays = job->update == nullptr ? 0 : job->update->program.body().states.size();
  for (size_t i = 0; i < arrays; ++i) batch.Writes(all[i]);
  if (job->master != nullptr) batch.Writes(master);
  const auto kept = job->states;
  *job = TileJob();
  job->states = kept;
}

// A cache of the scalars of updates.  The scalars of the previous key are reused if their inputs
// are equal.
class ScalarsOfKeys final {
 public:
  //   throws  as BindScalars
  const UpdateScalars& Bind(const CompiledUpdate& update, std::vector<double> params,
                            std::span<void* const> states, double round) {
    if (update_ == &update && round_ == round && AreSameBits(params_, params)) return scalars_;
    scalars_ = BindScalars(update, params, states, round, 1);
    params_ = std::move(params);
    round_ = round;
    update_ = update.program.body().scalar_states.empty() ? &update : nullptr;
    return scalars_;
  }
  const std::vector<double>& params() const { return params_; }

 private:
  // Null: the scalars depend on more inputs and are not reused.
  const CompiledUpdate* update_ = nullptr;
  std::vector<double> params_;
  double round_ = 0;
  UpdateScalars scalars_;
};

// Updates or assigns the first keys of a call.
//   returns  the error of a GPU that was lost after another one had begun, or of the host in that
//            case; pushes to other keys have taken effect
std::optional<Error> LocalStore::RunTiles(std::string_view verb, const Claim& claim,
                                          size_t push_count, const Sources& sources,
                                          const Outputs* fused_outputs, RowSums rows) {
  const std::shared_ptr<const Optimizer>& optimizer = claim.updater->optimizer;
  if (!optimizer && AreManySmall(claim, push_count, sources)) {
    AssignMany(verb, claim, push_count, sources, fused_outputs);
    return std::nullopt;
  }
  SmallVector<TileJob, 1> jobs(push_count);
  std::vector<UpdateScalars> scalars(optimizer ? push_count : 0);
  std::vector<FreshState> fresh;  // in the order of groups
  std::vector<std::array<void*, Program::kStatesMax>> states(optimizer ? push_count : 0);
  std::vector<std::unique_ptr<RowsPush>> row_pushes(claim.has_rows ? push_count : 0);
  std::vector<TileJob> row_jobs;  // for dense values to which rows are pushed
  std::vector<std::unique_ptr<void*[]>> row_states;
  GpuBatches gpus(verb);
  ScalarsOfKeys bound;
  for (size_t g = 0; g < push_count; ++g) {
    Entry& entry = *claim.entries[g];
    if (entry.by_rows()) {
      row_pushes[g] = PrepareRows(verb, &entry, *std::move(rows[g]), claim.updater.get());
      continue;  // the job of this key stays empty
    }
    TileJob& job = jobs[g];
    job.dtype = entry.value.dtype();
    job.count = static_cast<size_t>(entry.value.size());
    sources.GiveTo(g, &job);
    job.value = entry.value.data();
    if (fused_outputs != nullptr) job.outputs = fused_outputs->of(g);
    CheckSum(verb, entry, optimizer ? SIZE_MAX : job.sources.size());
    const bool is_on_gpu = claim.has_gpus && IsOnGpu(entry);
    if (!optimizer) {
      if (is_on_gpu) GiveToGpu(entry, {}, 0, entry.states, entry.master, &gpus, &job);
      continue;
    }
    const bool is_fresh = entry.state_of != claim.updater->StateOf();
    if (is_fresh) {
      fresh.push_back(
          {g, NamingKey(verb, entry.key.view(), [&] { return StateFor(entry, optimizer); })});
    }
    const auto& arrays = is_fresh ? fresh.back().state.states : entry.states;
    const NDArray& master = is_fresh ? fresh.back().state.master : entry.master;
    for (size_t i = 0; i < arrays.size(); ++i) states[g][i] = arrays[i].data();
    job.states = {states[g].data(), arrays.size()};
    const auto round = static_cast<double>(is_fresh ? 1 : entry.updates + 1);
    NamingKey(verb, entry.key.view(), [&] {
      job.update = &claim.updater->CompiledFor(job.dtype);
      scalars[g] =
          bound.Bind(*job.update, optimizer->ParamsFor(entry.key.view()), job.states, round);
    });
    job.scalars = &scalars[g];
    if (optimizer->program().body().draw_count > 0) job.stream = StreamOf(entry.key.view());
    if (master) job.master = static_cast<float*>(master.data());
    if (is_on_gpu) {
      GiveToGpu(entry, bound.params(), round, arrays, master, &gpus, &job);
    }
    if (rows.empty() || !rows[g]) continue;
    AddRowJobs(job, entry, *rows[g], &row_states, &row_jobs);
    job.count = 0;
  }
  if (claim.has_gpus) {
    for (const Lent& one : sources.lent) gpus.Of(claim.entries[one.of]->value).Reads(one.storage);
    if (fused_outputs != nullptr) {
      for (const Lent& one : fused_outputs->lent) {
        gpus.Of(claim.entries[one.of]->value).Writes(one.storage);
      }
    }
    gpus.Prepare();
    gpus.Enter(options_.patience);
  }
  if (!row_jobs.empty()) row_jobs.insert(row_jobs.end(), jobs.begin(), jobs.end());
  std::optional<Error> late;
  if (claim.has_gpus) late = gpus.Update();  // first: if only GPUs fail, nothing has changed
  bool host_has_run = true;
  try {
    NamedWhereMemoryEnds(verb, [&] {
      RunJobs(row_jobs.empty() ? std::span<const TileJob>(jobs.data(), jobs.size()) : row_jobs,
              ThreadsFor(options_.threads));
    });
    for (const auto& push : row_pushes) {
      if (push) push->Run();
    }
  } catch (const Error& error) {
    if (!gpus.has_begun()) throw;
    host_has_run = false;
    if (!late) late = error;
  }
  if (!optimizer) return late;
  auto next = fresh.begin();
  for (size_t g = 0; g < push_count; ++g) {
    Entry& entry = *claim.entries[g];
    const bool is_fresh = next != fresh.end() && next->group == g;
    const auto made = is_fresh ? next++ : next;
    if (entry.by_rows() || (!host_has_run && !IsOnGpu(entry))) continue;
    if (is_fresh) {
      entry.state_of = claim.updater->StateOf();
      entry.states = std::move(made->state.states);
      entry.master = std::move(made->state.master);
      entry.updates = 0;
    }
    KeepScalars(scalars[g], jobs[g].states);
    ++entry.updates;
  }
  return late;
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
