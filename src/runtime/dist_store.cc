#include "runtime/dist_store.h"

#include <algorithm>
#include <atomic>

#include "base/process.h"
#include "store/checks.h"

namespace tkv {
namespace {

using Clock = std::chrono::steady_clock;

Time Nanoseconds(std::chrono::nanoseconds duration) { return duration.count(); }

bool IsAsync(const std::string& type) { return type.find("async") != std::string::npos; }

}  // namespace

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
  if (!order_.empty()) CheckKind(verb, key, order_.front().is_string());
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
  }
  Control("set_updater", {});
  const auto lock = Lock("set_updater");
  optimizer_ = nullptr;
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
  }
  std::vector<double> params = spec.params;
  Control("set_optimizer", std::move(spec));
  const auto lock = Lock("set_optimizer");
  optimizer_ = std::move(optimizer);
  committed_params_ = std::move(params);
  compiled_ = {};
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
    const bool is_gone = failed.code() == Code::kAborted || failed.code() == Code::kUnavailable;
    if (!is_gone) error = std::current_exception();
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
