#include "runtime/dist_store.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <set>

#include "base/check.h"
#include "base/process.h"
#include "base/small_vector.h"
#include "store/overlap.h"
#include "update/parallel.h"
#include "update/tile_driver.h"

namespace tkv {
namespace {

constexpr std::chrono::milliseconds kInterruptEvery{50};
using Clock = std::chrono::steady_clock;

Time Nanoseconds(std::chrono::nanoseconds duration) { return duration.count(); }

bool IsAsync(const std::string& type) { return type.find("async") != std::string::npos; }

// One call: the operations that it has started, and what is to be done when they are.  Guarded by
// its own mutex; a ticket is a pointer to it.
class Call final : public Pending {
 public:
  // Tickets and busy arrays may outlive the store, so nothing of it is referred to.
  Call(std::string verb, std::function<void()> interrupt)
      : verb_(std::move(verb)), interrupt_(std::move(interrupt)) {}

  bool done() const noexcept override {
    std::lock_guard lock(mutex_);
    return done_;
  }
  // Its error is told once: here, or by the store if nobody asks here.
  void Wait(std::chrono::nanoseconds patience) override {
    WaitFor(patience, [this] { return done_; });
    std::lock_guard lock(mutex_);
    is_looked_at_ = true;
    if (error_) throw Error(*error_);
  }
  // Until every push of it is accepted, so that its sources are free.
  void WaitAccepted(std::chrono::nanoseconds patience) {
    WaitFor(patience, [this] { return done_ || unaccepted_ == 0; });
  }
  bool accepted() const {
    std::lock_guard lock(mutex_);
    return done_ || unaccepted_ == 0;
  }

  // ---- the store's side, under the lock of its node
  void Expect(size_t operations, size_t pushes) {
    std::lock_guard lock(mutex_);
    left_ = operations;
    unaccepted_ = pushes;
  }
  void Accepted() {
    std::lock_guard lock(mutex_);
    --unaccepted_;
    changed_.notify_all();
  }
  // True where that was the last one.
  bool End(bool was_unaccepted, const std::optional<Error>& error) {
    std::unique_lock lock(mutex_);
    if (was_unaccepted) --unaccepted_;
    if (error && !error_) error_ = error;
    if (--left_ > 0) return false;
    const bool good = !error_;
    lock.unlock();
    if (good && finish) {
      try {
        finish();
      } catch (const Error& failed) {
        lock.lock();
        error_ = failed;
        lock.unlock();
      }
    }
    lock.lock();
    done_ = true;
    changed_.notify_all();
    return true;
  }
  std::optional<Error> UnseenError() const {
    std::lock_guard lock(mutex_);
    return is_looked_at_ ? std::nullopt : error_;
  }
  void LookedAt() {
    std::lock_guard lock(mutex_);
    is_looked_at_ = true;
  }

  std::vector<OpId> ops;
  std::vector<Key> keys;
  std::vector<NDArray> arrays;   // that its operations read or write
  std::function<void()> finish;  // when all operations have succeeded

 private:
  template <typename Condition>
  void WaitFor(std::chrono::nanoseconds patience, Condition condition) {
    const auto deadline = Clock::now() + patience;
    std::unique_lock lock(mutex_);
    while (!condition()) {
      changed_.wait_for(lock, kInterruptEvery);
      if (condition()) return;
      if (interrupt_) {
        lock.unlock();
        interrupt_();
        lock.lock();
      }
      if (!condition() && Clock::now() >= deadline) {
        throw Fail(Code::kDeadlineExceeded, "{}: not done after {} ms", verb_,
                   std::chrono::duration_cast<std::chrono::milliseconds>(patience).count());
      }
    }
  }

  const std::string verb_;
  const std::function<void()> interrupt_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t left_ = 0;
  size_t unaccepted_ = 0;
  bool done_ = false;
  bool is_looked_at_ = false;
  std::optional<Error> error_;
};

using CallPtr = std::shared_ptr<Call>;

// What all ranks know of a key.
struct KeyRecord {
  Key key;
  std::string name;  // canonical
  KVStore::KeyInfo info;
  KeyMeta::Mode mode = KeyMeta::Mode::kSync;
};

using RecordPtr = std::shared_ptr<const KeyRecord>;

// The part of a call that holds its sources: done when they are free.
class AcceptedPart final : public Pending {
 public:
  explicit AcceptedPart(CallPtr call) : call_(std::move(call)) {}
  bool done() const noexcept override { return call_->accepted(); }
  void Wait(std::chrono::nanoseconds patience) override { call_->WaitAccepted(patience); }

 private:
  const CallPtr call_;
};

ClientNode& AsClient(Node& node) { return static_cast<ClientNode&>(node); }

class DistStore final : public KVStore {
 public:
  DistStore(std::string type, const StoreOptions& options, std::shared_ptr<Cluster> cluster,
            Rank rank);
  ~DistStore() override;

  void Init(std::span<const InitItem> items) override { InitAs("init", items); }
  void Push(std::span<const PushItem> items) override;
  void Pull(std::span<const PullItem> items) override {
    Await(StartPulls("pull", items), options_.patience);
  }
  void PushPull(std::span<const PushItem> items, std::span<const PullItem> outs) override {
    Await(StartPushPull("pushpull", items, outs), options_.patience);
  }
  Ticket PushAsync(std::span<const PushItem> items) override {
    return Tracked(StartPushes("push", items, true));
  }
  Ticket PullAsync(std::span<const PullItem> items) override {
    return Tracked(StartPulls("pull", items));
  }
  Ticket PushPullAsync(std::span<const PushItem> items, std::span<const PullItem> outs) override {
    return Tracked(StartPushPull("pushpull", items, outs));
  }
  void Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) override;
  void Delete(const KeyView& key) override;
  void SetUpdater(UpdateFunction updater) override;
  void SetOptimizer(std::shared_ptr<const Optimizer> optimizer) override;

  std::string type() const override { return type_; }
  int rank() const override { return rank_; }
  int num_workers() const override { return workers_; }
  bool rejoined() const override { return rejoined_; }
  void Barrier() override;
  uint64_t Round(const KeyView& key) const override;

  size_t size() const override {
    const auto lock = Lock("len");
    return keys_.size();
  }
  bool Contains(const KeyView& key) const override {
    const auto lock = Lock("in");
    return keys_.contains(Key(key));
  }
  KeyInfo Describe(const KeyView& key, std::string_view verb) const override {
    const auto lock = Lock(verb);
    return Get(verb, key)->info;
  }
  std::vector<Key> Keys() const override {
    const auto lock = Lock("keys");
    return order_;
  }
  void Close() override;

 private:
  std::unique_lock<std::mutex> Lock(std::string_view verb) const;
  RecordPtr Get(std::string_view verb, const KeyView& key) const;
  void CheckValues(std::string_view verb, const PushItem& item, const KeyRecord& record) const;
  void CheckOuts(std::string_view verb, const PullItem& item, const KeyInfo& info) const;
  void CheckUpdate(std::string_view verb, const KeyRecord& record);
  void RaiseUnseen(std::string_view verb, std::span<const KeyView> keys);
  void InitAs(std::string_view verb, std::span<const InitItem> items);

  // The sum of a push as one contiguous array; `is_own` where nobody else can see its memory.
  struct Source {
    RecordPtr record;
    NDArray array;
    bool is_own = false;
    std::optional<std::vector<double>> scalars;
  };
  std::vector<Source> GatherSources(std::string_view verb, std::span<const PushItem> items);
  // Where a pull lands, and the outs that are filled from there.
  struct Target {
    RecordPtr record;
    NDArray landing;
    std::vector<NDArray> outs;  // other than the landing itself
  };
  std::vector<Target> GatherTargets(std::string_view verb, std::span<const PullItem> items,
                                    std::span<const PushItem> inputs);

  CallPtr StartPushes(const std::string& verb, std::span<const PushItem> items, bool until_done);
  CallPtr StartPulls(const std::string& verb, std::span<const PullItem> items);
  CallPtr StartPushPull(const std::string& verb, std::span<const PushItem> items,
                        std::span<const PullItem> outs);
  Operation Make(Operation::Kind kind, const std::string& verb, const KeyRecord* record) const;
  Operation MakePush(Operation::Kind kind, const std::string& verb, const Source& source,
                     const CallPtr& call) const;
  void AddTarget(const Target& target, Operation* operation, const CallPtr& call) const;
  static void FinishTargets(const CallPtr& call, std::vector<Target> targets);
  // Starts all operations of a call at once.
  void Launch(const CallPtr& call, std::vector<Operation> operations);
  void FreeSources(const CallPtr& call, const std::vector<Source>& sources);
  void Await(const CallPtr& call, std::chrono::nanoseconds patience);
  void GiveUp(const CallPtr& call);
  CallPtr NewCall(const std::string& verb) {
    return std::make_shared<Call>(verb, options_.interrupt);
  }
  Ticket Tracked(const CallPtr& call);
  void OnChange(ClientNode* node);
  void CancelAll(const char* why);
  void Control(const std::string& verb, UpdateSpec spec);

  const std::string type_;
  const StoreOptions options_;
  const unsigned birth_;
  const KeyMeta::Mode mode_;
  std::shared_ptr<Cluster> cluster_;
  std::unique_ptr<BufferPool> pool_ = std::make_unique<BufferPool>();
  int rank_ = 0;
  int workers_ = 0;
  bool rejoined_ = false;

  struct Running {
    CallPtr call;
    bool is_unaccepted = false;
  };
  std::map<OpId, Running> calls_;  // guarded by the node's lock
  std::mutex joined_mutex_;
  std::condition_variable joined_changed_;
  bool joined_ = false;
  std::optional<Error> refused_;

  mutable std::mutex mutex_;  // of what follows; never held together with a wait
  bool closed_ = false;
  std::map<Key, RecordPtr> keys_;
  std::vector<Key> order_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::vector<double> committed_params_;
  std::array<std::optional<CompiledUpdate>, 16> compiled_;
  std::vector<CallPtr> untold_;     // calls that nobody may wait for
  std::vector<NDArray> graveyard_;  // arrays of calls that have ended, freed by the next call

  std::unique_ptr<NodeThread> thread_;  // last: it ends before what it works on
};

// ---- life ---------------------------------------------------------------------------------------

DistStore::DistStore(std::string type, const StoreOptions& options,
                     std::shared_ptr<Cluster> cluster, Rank rank)
    : type_(std::move(type)),
      options_(options),
      birth_(ForkGeneration()),
      mode_(IsAsync(type_) ? KeyMeta::Mode::kAsync : KeyMeta::Mode::kSync),
      cluster_(std::move(cluster)) {
  static std::atomic<uint64_t> process_count{0};
  const uint64_t number = ++process_count;
  MemberOptions member;
  member.job = Cluster::kJob;
  member.rank = rank;
  member.process = number;
  ClientOptions client;
  client.job = member.job;
  client.patience = Nanoseconds(options_.patience);
  client.server_patience = Nanoseconds(options_.server_patience);
  thread_ = std::make_unique<NodeThread>(std::make_unique<ClientNode>(member, client, pool_.get()),
                                         cluster_->network()->Listen(format("worker.{}", number)),
                                         NodeThreadOptions{Cluster::AddressOf, options_.log});
  thread_->OnChange([this](Node& node) { OnChange(&AsClient(node)); });
  thread_->Start();
  const auto deadline = Clock::now() + options_.server_patience;
  std::unique_lock lock(joined_mutex_);
  while (!joined_ && !refused_) {
    joined_changed_.wait_for(lock, kInterruptEvery);
    if (joined_ || refused_) break;
    if (options_.interrupt) {
      lock.unlock();
      options_.interrupt();
      lock.lock();
    }
    if (Clock::now() >= deadline) {
      throw Fail(Code::kDeadlineExceeded, "create '{}': waited {} ms for the head and the servers",
                 type_, options_.server_patience.count());
    }
  }
  if (refused_) throw Fail(refused_->code(), "create '{}': {}", type_, refused_->what());
}

DistStore::~DistStore() {
  if (ForkGeneration() != birth_) {  // the threads are the parent's
    [[maybe_unused]] auto* const thread = thread_.release();
    [[maybe_unused]] auto* const pool = pool_.release();
    Cluster::Leak(cluster_);
    return;
  }
  CancelAll("the store is gone");
  thread_->Stop();
}

// Ends every call that is under way, so that nobody waits for one that cannot end any more.
void DistStore::CancelAll(const char* why) {
  thread_->Run([&](Node& node, Time now) {
    std::vector<OpId> ids;
    ids.reserve(calls_.size());
    for (const auto& [id, running] : calls_) ids.push_back(id);
    for (const OpId id : ids) AsClient(node).Cancel(id, Error(Code::kCancelled, why), now);
  });
}

// Runs under the node's lock.
void DistStore::OnChange(ClientNode* node) {
  if (!joined_) {
    const Epoch& epoch = node->member().epoch();
    const bool all_there = node->joined() && std::all_of(epoch.servers.begin(), epoch.servers.end(),
                                                         [](const auto& s) {
                                                           return s.state != Epoch::State::kAwaited;
                                                         });
    std::lock_guard lock(joined_mutex_);
    refused_ = node->member().refused();
    joined_ = all_there;
    if (all_there) {
      rank_ = node->client().rank();
      workers_ = static_cast<int>(epoch.workers.size());
      rejoined_ = node->client().rejoined();
    }
    if (joined_ || refused_) joined_changed_.notify_all();
  }
  for (const Outcome& outcome : node->TakeOutcomes()) {
    const auto found = calls_.find(outcome.op);
    if (found == calls_.end()) continue;
    Running& running = found->second;
    if (outcome.event == Outcome::Event::kAccepted) {
      if (running.is_unaccepted) running.call->Accepted();
      running.is_unaccepted = false;
      continue;
    }
    const CallPtr call = running.call;
    const bool was_unaccepted = running.is_unaccepted;
    calls_.erase(found);
    if (call->End(was_unaccepted, outcome.error)) {
      // Arrays of other frameworks are freed by a thread of the user's.
      std::lock_guard lock(mutex_);
      call->finish = nullptr;
      for (NDArray& array : call->arrays) graveyard_.push_back(std::move(array));
      call->arrays.clear();
    }
  }
}

std::unique_lock<std::mutex> DistStore::Lock(std::string_view verb) const {
  if (ForkGeneration() != birth_) {
    throw Fail(Code::kFailedPrecondition,
               "{}: this store was made before fork() in another process; create one in this "
               "process",
               verb);
  }
  std::unique_lock lock(mutex_);
  if (closed_) throw Fail(Code::kFailedPrecondition, "{}: the store is closed", verb);
  return lock;
}

RecordPtr DistStore::Get(std::string_view verb, const KeyView& key) const {
  const auto found = keys_.find(Key(key));
  if (found != keys_.end()) return found->second;
  if (!order_.empty() && order_.front().is_string() != key.is_string) {
    throw Fail(Code::kInvalidArgument, "{} {}: {} key, the store has {} keys", verb, key.ToString(),
               key.is_string ? "a string" : "an integer", key.is_string ? "integer" : "string");
  }
  throw Fail(Code::kNotFound, "{} {}: no such key, init it first", verb, key.ToString());
}

// Failures of calls that nobody has waited for, of these keys (or, with none, of any).
void DistStore::RaiseUnseen(std::string_view verb, std::span<const KeyView> keys) {
  std::vector<NDArray> buried;
  std::optional<Error> error;
  {
    std::lock_guard lock(mutex_);
    buried.swap(graveyard_);
    std::erase_if(untold_, [&](const CallPtr& call) {
      if (!call->done()) return false;
      const std::optional<Error> unseen = call->UnseenError();
      if (!unseen) return true;
      const bool concerns =
          keys.empty() || std::any_of(keys.begin(), keys.end(), [&](const KeyView& key) {
            return std::find(call->keys.begin(), call->keys.end(), Key(key)) != call->keys.end();
          });
      if (!concerns || error) return false;
      call->LookedAt();
      error = unseen;
      return true;
    });
  }
  if (error) {
    throw Fail(error->code(), "{}: an earlier call failed: {}", verb, error->what());
  }
}

template <typename Item>
std::vector<KeyView> KeysOf(std::span<const Item> items) {
  std::vector<KeyView> keys;
  for (const Item& item : items) keys.push_back(item.key);
  return keys;
}

// ---- checks -------------------------------------------------------------------------------------

void DistStore::CheckValues(std::string_view verb, const PushItem& item,
                            const KeyRecord& record) const {
  if (item.values.empty()) {
    throw Fail(Code::kInvalidArgument, "{} {}: the list of values is empty", verb,
               item.key.ToString());
  }
  for (const NDArray* value : item.values) {
    if (value->shape() != record.info.shape) {
      throw Fail(Code::kInvalidArgument, "{} {}: shape {}, the key has {}", verb,
                 item.key.ToString(), value->shape().ToString(), record.info.shape.ToString());
    }
    if (value->dtype() != record.info.dtype) {
      throw Fail(Code::kInvalidArgument, "{} {}: dtype {}, the key has {}", verb,
                 item.key.ToString(), Name(value->dtype()), Name(record.info.dtype));
    }
  }
}

void DistStore::CheckOuts(std::string_view verb, const PullItem& item, const KeyInfo& info) const {
  if (item.outs.empty()) {
    throw Fail(Code::kInvalidArgument, "{} {}: the list of outputs is empty", verb,
               item.key.ToString());
  }
  for (const NDArray* out : item.outs) {
    if (out->shape() != info.shape) {
      throw Fail(Code::kInvalidArgument, "{} {}: the output has shape {}, the key has {}", verb,
                 item.key.ToString(), out->shape().ToString(), info.shape.ToString());
    }
    if (out->dtype() != info.dtype && !(IsFloat(out->dtype()) && IsFloat(info.dtype))) {
      throw Fail(Code::kInvalidArgument,
                 "{} {}: the output is {}, the key has {}; only floats convert", verb,
                 item.key.ToString(), Name(out->dtype()), Name(info.dtype));
    }
    if (out->read_only()) {
      throw Fail(Code::kInvalidArgument, "{} {}: the output is read-only", verb,
                 item.key.ToString());
    }
  }
}

// Whether the updater can take this key; with the store's lock.
void DistStore::CheckUpdate(std::string_view verb, const KeyRecord& record) {
  const DType dtype = record.info.dtype;
  if (!IsArithmetic(dtype) && (workers_ > 1 || optimizer_ != nullptr)) {
    throw Fail(Code::kInvalidArgument, "{} {}: {} values cannot be summed or updated", verb,
               record.key.view().ToString(), Name(dtype));
  }
  if (optimizer_ == nullptr) return;
  try {
    auto& compiled = compiled_[static_cast<size_t>(dtype)];
    if (!compiled) compiled = CompileUpdate(optimizer_->program(), dtype);
    BindScalars(*compiled, optimizer_->ParamsFor(record.key.view()), 1, workers_);
  } catch (const Error& error) {
    throw Fail(error.code(), "{} {}: {}", verb, record.key.view().ToString(), error.what());
  }
}

// ---- gathering ----------------------------------------------------------------------------------

std::vector<DistStore::Source> DistStore::GatherSources(std::string_view verb,
                                                        std::span<const PushItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<Source> sources;
  std::vector<std::vector<const NDArray*>> values;
  {
    const auto lock = Lock(verb);
    for (const PushItem& item : items) {
      const RecordPtr record = Get(verb, item.key);
      CheckValues(verb, item, *record);
      size_t at = 0;
      while (at < sources.size() && sources[at].record != record) ++at;
      if (at == sources.size()) {
        CheckUpdate(verb, *record);
        sources.push_back({record, {}, false, {}});
        values.emplace_back();
        if (optimizer_ != nullptr) {
          std::vector<double> params = optimizer_->ParamsFor(item.key);
          if (params != committed_params_) sources.back().scalars = std::move(params);
        }
      }
      values[at].insert(values[at].end(), item.values.begin(), item.values.end());
      if (values[at].size() > 1 && !IsArithmetic(record->info.dtype)) {
        throw Fail(Code::kInvalidArgument, "{} {}: {} values cannot be summed or updated", verb,
                   item.key.ToString(), Name(record->info.dtype));
      }
    }
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<NDArray> packed;
    std::vector<const void*> pointers;
    for (const NDArray* value : values[i]) {
      value->storage()->WaitReadable(options_.patience);
      packed.push_back(value->Packed());
      pointers.push_back(packed.back().data());
    }
    if (packed.size() == 1) {
      sources[i].is_own = !values[i][0]->contiguous();
      sources[i].array = packed[0];
      continue;
    }
    const NDArray sum = NDArray::Empty(packed[0].shape(), packed[0].dtype());
    TileJob job;
    job.dtype = sum.dtype();
    job.count = static_cast<size_t>(sum.size());
    job.sources = pointers;
    job.value = sum.data();
    RunJobs({&job, 1}, ThreadsFor(options_.threads));
    sources[i].array = sum;
    sources[i].is_own = true;
  }
  return sources;
}

std::vector<DistStore::Target> DistStore::GatherTargets(std::string_view verb,
                                                        std::span<const PullItem> items,
                                                        std::span<const PushItem> inputs) {
  std::vector<Target> targets;
  std::vector<std::vector<const NDArray*>> outs;
  {
    const auto lock = Lock(verb);
    for (const PullItem& item : items) {
      const RecordPtr record = Get(verb, item.key);
      CheckOuts(verb, item, record->info);
      targets.push_back({record, {}, {}});
      outs.emplace_back(item.outs.begin(), item.outs.end());
    }
  }
  // Values land in the outs themselves unless arrays of the call share memory.
  OverlapCheck overlap;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const NDArray* value : inputs[i].values) overlap.Reads(i, *value);
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    for (const NDArray* out : outs[i]) overlap.Writes(i, *out);
  }
  const bool shares = overlap.Conflicts();
  for (size_t i = 0; i < targets.size(); ++i) {
    const KeyInfo& info = targets[i].record->info;
    for (const NDArray* out : outs[i]) {
      out->storage()->WaitWritable(options_.patience);
      const bool can_land = !shares && !targets[i].landing && out->contiguous() &&
                            out->dtype() == info.dtype && outs[i].size() == 1;
      if (can_land) {
        targets[i].landing = *out;
      } else {
        targets[i].outs.push_back(*out);
      }
    }
    if (!targets[i].landing) targets[i].landing = NDArray::Empty(info.shape, info.dtype);
  }
  return targets;
}

// ---- operations ---------------------------------------------------------------------------------

Operation DistStore::Make(Operation::Kind kind, const std::string& verb,
                          const KeyRecord* record) const {
  Operation operation;
  operation.kind = kind;
  operation.verb = verb;
  if (record != nullptr) operation.key = record->name;
  return operation;
}

Operation DistStore::MakePush(Operation::Kind kind, const std::string& verb, const Source& source,
                              const CallPtr& call) const {
  Operation push = Make(kind, verb, source.record.get());
  push.value = {static_cast<const std::byte*>(source.array.data()), source.array.bytes(),
                source.array.storage()};
  push.scalars = source.scalars;
  call->keys.push_back(source.record->key);
  call->arrays.push_back(source.array);
  return push;
}

void DistStore::AddTarget(const Target& target, Operation* operation, const CallPtr& call) const {
  operation->out = {static_cast<std::byte*>(target.landing.data()), target.landing.bytes(),
                    target.landing.storage()};
  call->keys.push_back(target.record->key);
  call->arrays.push_back(target.landing);
}

// What is left to do when all values have landed.
void DistStore::FinishTargets(const CallPtr& call, std::vector<Target> targets) {
  std::erase_if(targets, [](const Target& target) { return target.outs.empty(); });
  if (targets.empty()) return;
  for (const Target& target : targets) {
    for (const NDArray& out : target.outs) call->arrays.push_back(out);
  }
  call->finish = [targets = std::move(targets)] {
    for (const Target& target : targets) {
      for (const NDArray& out : target.outs) {
        const NDArray packed = out.contiguous() ? out : NDArray::Empty(out.shape(), out.dtype());
        const TileJob::Output output{packed.data(), packed.dtype()};
        TileJob job;
        job.dtype = target.landing.dtype();
        job.count = static_cast<size_t>(target.landing.size());
        job.value = target.landing.data();
        job.outputs = {&output, 1};
        RunJobs({&job, 1}, 1);
        if (!out.contiguous()) out.CopyFrom(packed);
      }
    }
  };
}

void DistStore::Launch(const CallPtr& call, std::vector<Operation> operations) {
  size_t pushes = 0;
  for (const Operation& operation : operations) {
    pushes += static_cast<size_t>(operation.kind == Operation::Kind::kPush ||
                                  operation.kind == Operation::Kind::kPushPull);
  }
  call->Expect(operations.size(), pushes);
  thread_->Run([&](Node& node, Time now) {
    ClientNode& client = AsClient(node);
    for (Operation& operation : operations) {
      const bool is_push =
          operation.kind == Operation::Kind::kPush || operation.kind == Operation::Kind::kPushPull;
      const OpId id = client.client().next_op();
      calls_[id] = {call, is_push};
      call->ops.push_back(id);
      client.Begin(std::move(operation), now);
    }
  });
}

void DistStore::Await(const CallPtr& call, std::chrono::nanoseconds patience) {
  // The operations have deadlines of their own; this one is for a thread that is stuck.
  try {
    call->Wait(patience + options_.server_patience + std::chrono::seconds(5));
  } catch (...) {
    if (!call->done()) GiveUp(call);
    throw;
  }
}

// The caller does not wait any longer: nothing of it is written to from here on, and what it has
// pushed is read from a copy.
void DistStore::GiveUp(const CallPtr& call) {
  thread_->Run([&](Node& node, Time now) {
    for (const OpId id : call->ops) {
      if (!calls_.contains(id)) continue;
      AsClient(node).Detach(id);
      AsClient(node).Cancel(id, Error(Code::kCancelled, "given up by its caller"), now);
    }
  });
  call->LookedAt();
}

Ticket DistStore::Tracked(const CallPtr& call) {
  std::lock_guard lock(mutex_);
  untold_.push_back(call);
  return call;
}

// A push returns when its sources are its own: arrays of this library stay busy until they are
// read, arrays of others are copied where that takes long.
void DistStore::FreeSources(const CallPtr& call, const std::vector<Source>& sources) {
  bool waits = false;
  size_t foreign_bytes = 0;
  for (const Source& source : sources) {
    if (source.is_own) continue;
    if (source.array.storage()->foreign()) {
      waits = true;
      foreign_bytes += source.array.bytes();
    } else {
      source.array.storage()->AddReader(std::make_shared<AcceptedPart>(call));
    }
  }
  if (!waits) return;
  constexpr std::chrono::milliseconds kSoon{5};
  const auto detach = [&] {
    thread_->Run([&](Node& node, Time) {
      for (const OpId id : call->ops) AsClient(node).Detach(id);
    });
  };
  try {
    call->WaitAccepted(foreign_bytes <= options_.window_bytes
                           ? std::chrono::nanoseconds(kSoon)
                           : std::chrono::nanoseconds(options_.patience));
  } catch (const Error&) {
    detach();
  } catch (...) {  // interrupted: the push goes on
    detach();
    throw;
  }
}

CallPtr DistStore::StartPushes(const std::string& verb, std::span<const PushItem> items,
                               bool until_done) {
  RaiseUnseen(verb, KeysOf(items));
  const std::vector<Source> sources = GatherSources(verb, items);
  const CallPtr call = NewCall(verb);
  std::vector<Operation> operations;
  for (const Source& source : sources) {
    operations.push_back(MakePush(Operation::Kind::kPush, verb, source, call));
    if (until_done) {
      operations.push_back(Make(Operation::Kind::kWait, verb, source.record.get()));
    }
  }
  Launch(call, std::move(operations));
  FreeSources(call, sources);
  return call;
}

void DistStore::Push(std::span<const PushItem> items) {
  Tracked(StartPushes("push", items, false));
}

CallPtr DistStore::StartPulls(const std::string& verb, std::span<const PullItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  RaiseUnseen(verb, KeysOf(items));
  std::vector<Target> targets = GatherTargets(verb, items, {});
  const CallPtr call = NewCall(verb);
  std::vector<Operation> operations;
  for (const Target& target : targets) {
    operations.push_back(Make(Operation::Kind::kPull, verb, target.record.get()));
    AddTarget(target, &operations.back(), call);
  }
  FinishTargets(call, std::move(targets));
  Launch(call, std::move(operations));
  return call;
}

CallPtr DistStore::StartPushPull(const std::string& verb, std::span<const PushItem> items,
                                 std::span<const PullItem> outs) {
  RaiseUnseen(verb, KeysOf(items));
  RaiseUnseen(verb, KeysOf(outs));
  std::vector<Target> targets = GatherTargets(verb, outs, items);
  const std::vector<Source> sources = GatherSources(verb, items);
  const CallPtr call = NewCall(verb);
  std::vector<Operation> operations;
  std::vector<bool> is_pulled(targets.size());
  for (const Source& source : sources) {
    const auto target = std::find_if(targets.begin(), targets.end(),
                                     [&](const Target& t) { return t.record == source.record; });
    if (target == targets.end()) {
      operations.push_back(MakePush(Operation::Kind::kPush, verb, source, call));
      continue;
    }
    operations.push_back(MakePush(Operation::Kind::kPushPull, verb, source, call));
    AddTarget(*target, &operations.back(), call);
    is_pulled[static_cast<size_t>(target - targets.begin())] = true;
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (is_pulled[i]) continue;
    operations.push_back(Make(Operation::Kind::kPull, verb, targets[i].record.get()));
    AddTarget(targets[i], &operations.back(), call);
  }
  FinishTargets(call, std::move(targets));
  Launch(call, std::move(operations));
  return call;
}

// ---- keys ---------------------------------------------------------------------------------------

void DistStore::InitAs(std::string_view verb, std::span<const InitItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  RaiseUnseen(verb, KeysOf(items));
  std::vector<std::shared_ptr<KeyRecord>> records;
  {
    const auto lock = Lock(verb);
    std::set<Key> seen;
    for (const InitItem& item : items) {
      if (item.key.is_string != items[0].key.is_string) {
        throw Fail(Code::kInvalidArgument, "{} {}: integer and string keys in one call", verb,
                   item.key.ToString());
      }
      if (!order_.empty() && order_.front().is_string() != item.key.is_string) {
        throw Fail(Code::kInvalidArgument, "{} {}: {} key, the store has {} keys", verb,
                   item.key.ToString(), item.key.is_string ? "a string" : "an integer",
                   item.key.is_string ? "integer" : "string");
      }
      if (keys_.contains(Key(item.key))) {
        throw Fail(Code::kAlreadyExists, "{} {}: the key is there already", verb,
                   item.key.ToString());
      }
      if (!seen.insert(Key(item.key)).second) {
        throw Fail(Code::kAlreadyExists, "{} {}: the key stands twice in one call", verb,
                   item.key.ToString());
      }
      if (!item.mode.empty() && item.mode != "sync" && item.mode != "async") {
        throw Fail(Code::kInvalidArgument, "{} {}: mode '{}'; there are sync and async", verb,
                   item.key.ToString(), item.mode);
      }
      const NDArray& value = *item.value;
      records.push_back(std::make_shared<KeyRecord>(
          KeyRecord{Key(item.key), "", {value.shape(), value.dtype(), value.context()}, mode_}));
      try {
        records.back()->name = CanonicalKey(0, item.key);
      } catch (const Error& error) {
        throw Fail(error.code(), "{}: {}", verb, error.what());
      }
      if (item.mode == "sync") records.back()->mode = KeyMeta::Mode::kSync;
      if (item.mode == "async") records.back()->mode = KeyMeta::Mode::kAsync;
    }
  }
  std::vector<CallPtr> calls;
  for (size_t i = 0; i < items.size(); ++i) {
    const KeyRecord& record = *records[i];
    items[i].value->storage()->WaitReadable(options_.patience);
    const NDArray packed = items[i].value->Packed();
    Operation init = Make(Operation::Kind::kInit, std::string(verb), &record);
    init.meta.name = record.name;
    init.meta.dtype = record.info.dtype;
    init.meta.shape = record.info.shape;
    init.meta.mode = record.mode;
    if (record.mode == KeyMeta::Mode::kSync) {
      init.meta.staleness = static_cast<uint32_t>(options_.staleness);
    }
    init.meta.deterministic = options_.deterministic;
    init.value = {static_cast<const std::byte*>(packed.data()), packed.bytes(), packed.storage()};
    calls.push_back(NewCall(std::string(verb)));
    calls.back()->arrays.push_back(packed);
    std::vector<Operation> operations;
    operations.push_back(std::move(init));
    Launch(calls.back(), std::move(operations));
  }
  std::exception_ptr error;
  for (size_t i = 0; i < calls.size(); ++i) {
    try {
      if (error) {
        GiveUp(calls[i]);
      }
      Await(calls[i], options_.patience);
      const auto lock = Lock(verb);
      keys_[records[i]->key] = records[i];
      order_.push_back(records[i]->key);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void DistStore::Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) {
  for (const PullItem& out : outs) {
    const auto item = std::find_if(items.begin(), items.end(),
                                   [&](const InitItem& i) { return i.key == out.key; });
    if (item == items.end()) {
      throw Fail(Code::kInvalidArgument, "broadcast {}: an output but no value",
                 out.key.ToString());
    }
    const NDArray& value = *item->value;
    CheckOuts("broadcast", out, {value.shape(), value.dtype(), value.context()});
  }
  InitAs("broadcast", items);
  Await(StartPulls("broadcast", outs), options_.patience);
}

void DistStore::Delete(const KeyView& key) {
  RaiseUnseen("delete", {&key, 1});
  RecordPtr record;
  {
    const auto lock = Lock("delete");
    record = Get("delete", key);
  }
  const CallPtr call = NewCall("delete");
  std::vector<Operation> operations;
  operations.push_back(Make(Operation::Kind::kDelete, "delete", record.get()));
  Launch(call, std::move(operations));
  Await(call, options_.patience);
  const auto lock = Lock("delete");
  keys_.erase(record->key);
  std::erase(order_, record->key);
}

uint64_t DistStore::Round(const KeyView& key) const {
  RecordPtr record;
  {
    const auto lock = Lock("round");
    record = Get("round", key);
  }
  return thread_->Run(
      [&](Node& node, Time) { return AsClient(node).client().RoundOf(record->name); });
}

// ---- updater ------------------------------------------------------------------------------------

void DistStore::Control(const std::string& verb, UpdateSpec spec) {
  const bool is_sender =
      thread_->Run([](Node& node, Time) { return AsClient(node).client().IsSender(); });
  if (!is_sender) return;  // the lowest rank defines the updater for all
  const CallPtr call = NewCall(verb);
  Operation control = Make(Operation::Kind::kControl, verb, nullptr);
  control.spec = std::move(spec);
  std::vector<Operation> operations;
  operations.push_back(std::move(control));
  Launch(call, std::move(operations));
  Await(call, options_.patience);
}

void DistStore::SetUpdater(UpdateFunction updater) {
  {
    const auto lock = Lock("set_updater");
    if (updater) {
      throw Fail(Code::kUnimplemented,
                 "set_updater: a function cannot run on the servers yet; set_optimizer takes an "
                 "optimizer or a program, which can");
    }
    optimizer_ = nullptr;
  }
  Control("set_updater", {});
}

void DistStore::SetOptimizer(std::shared_ptr<const Optimizer> optimizer) {
  if (optimizer == nullptr) {
    throw Fail(Code::kInvalidArgument, "set_optimizer: there is no optimizer");
  }
  UpdateSpec spec;
  {
    const auto lock = Lock("set_optimizer");
    spec.program = optimizer->program().ToText();
    spec.multi_precision = optimizer->multi_precision();
    for (const Program::Param& param : optimizer->program().params()) {
      spec.params.push_back(optimizer->param(param.name));
    }
    spec.fresh = optimizer_ != nullptr && optimizer_ != optimizer;
    optimizer_ = std::move(optimizer);
    committed_params_ = spec.params;
    compiled_ = {};
  }
  Control("set_optimizer", std::move(spec));
}

// ---- barrier and end ----------------------------------------------------------------------------

void DistStore::Barrier() {
  {
    const auto lock = Lock("barrier");
  }
  const CallPtr call = NewCall("barrier");
  std::vector<Operation> operations;
  operations.push_back(Make(Operation::Kind::kBarrier, "barrier", nullptr));
  Launch(call, std::move(operations));
  Await(call, options_.patience);
}

void DistStore::Close() {
  if (ForkGeneration() != birth_) return;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  std::exception_ptr error;
  try {
    const CallPtr leave = NewCall("close");
    std::vector<Operation> operations;
    operations.push_back(Make(Operation::Kind::kLeave, "close", nullptr));
    Launch(leave, std::move(operations));
    Await(leave, options_.patience);
  } catch (const Error& failed) {
    // A worker that is fenced, or has nobody to take leave of, is gone all the same.
    if (failed.code() != Code::kAborted) error = std::current_exception();
  } catch (...) {
    error = std::current_exception();
  }
  CancelAll("the store is closed");
  thread_->Stop();
  RaiseUnseen("close", {});
  std::lock_guard lock(mutex_);
  keys_.clear();
  order_.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace

std::unique_ptr<KVStore> MakeDistStore(std::string type, const StoreOptions& options,
                                       std::shared_ptr<Cluster> cluster, Rank rank) {
  if (options.threads < 0 || options.patience.count() <= 0 ||
      options.server_patience.count() <= 0) {
    throw Fail(Code::kInvalidArgument, "create: threads {}, patience {} ms, server patience {} ms",
               options.threads, options.patience.count(), options.server_patience.count());
  }
  if (options.staleness < 0 || options.staleness > static_cast<int>(KeyMeta::kStalenessMax)) {
    throw Fail(Code::kInvalidArgument, "create: a staleness of {} rounds, 0 to {} are allowed",
               options.staleness, KeyMeta::kStalenessMax);
  }
  return std::make_unique<DistStore>(std::move(type), options, std::move(cluster), rank);
}

}  // namespace tkv
