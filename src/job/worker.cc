#include "job/worker.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "base/duration.h"
#include "base/format.h"
#include "base/memory_error.h"
#include "base/process.h"
#include "base/wait.h"
#include "job/start_notice.h"

namespace tkv {
namespace {

// Returns how the workers of a job that has ended have ended, in words.
const char* HowAllEnded(const Epoch& epoch) {
  const auto dead = std::ranges::count_if(epoch.workers, &Epoch::Seat::IsDead);
  if (dead == 0) return "all workers have left";
  return static_cast<size_t>(dead) == epoch.workers.size() ? "all workers are dead"
                                                           : "all workers have left or are dead";
}

using Clock = std::chrono::steady_clock;

}  // namespace

uint64_t LifeNumber() {
  static std::atomic<uint64_t> count{0};
  const auto now = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  return (now << 24) ^ (static_cast<uint64_t>(getpid()) << 12) ^ ++count;
}

Worker::Worker(const std::string& doing, const StoreOptions& store, WorkerOptions options)
    : role_(options.role),
      job_(options.job),
      url_(std::move(options.url)),
      carrier_(store.carrier),
      host_(std::move(options.host)),
      after_leave_(std::move(options.after_leave)),
      local_workers_(options.local_workers) {
  MemberOptions member;
  member.job = options.job;
  member.role = role_;
  member.rank = options.rank;
  member.process = LifeNumber();
  member.protocol = ThisProtocol();
  member.worker_beside_head = options.worker_beside_head;
  member.server_beside_head = options.server_beside_head;
  member.AllowSilence(std::chrono::nanoseconds(store.silence).count());
  ClientOptions client;
  client.job = options.job;
  client.protocol = member.protocol;
  client.patience = Saturated(store.patience).count();
  client.server_patience = Saturated(store.server_patience).count();
  NodeThreadOptions thread;
  thread.address_of = std::move(options.address_of);
  thread.log = store.log;
  thread.failed = [this](const Peer& peer, const Error& error) {
    if (peer.kind != Peer::Kind::kHead) return;
    std::lock_guard lock(mutex_);
    out_of_reach_ = error.what();
    if (error.code() != Code::kResourceExhausted || joined_ || refused_) return;
    // The cause is on this machine, so waiting longer would not help.
    refused_ = error;
    joined_changed_.notify_all();
  };
  NoMemoryLeft();  // makes the error while there is memory
  thread.broken = [this](const Error& error) { Broken(error); };
  thread_ = std::make_unique<NodeThread>(std::make_unique<ClientNode>(member, client, pool_.get()),
                                         std::move(options.endpoint), std::move(thread));
  calls_ = std::make_unique<RunningCalls>(thread_.get());
  thread_->OnChange([this](Node& node) { OnChange(static_cast<ClientNode*>(&node)); });
  thread_->Start();
  AwaitJoin(doing, store);
}

// Waits until this worker has joined or is refused, and logs from time to time who is missing.
void Worker::AwaitJoin(const std::string& doing, const StoreOptions& store) {
  // The processes of a job start in any order, some of them minutes later.  A worker waits for them
  // as long as for a round.  An observer expects a running job.
  const auto patience = is_observer() ? store.server_patience : store.patience;
  const auto deadline = DeadlineAfter(patience);
  for (StartNotice notice(doing, store.log);;) {
    std::unique_lock lock(mutex_);
    if (WaitUntil(&lock, &joined_changed_, std::min(deadline, notice.next()), store.interrupt,
                  [&] { return joined_ || refused_; })) {
      break;
    }
    // The node's hooks take this lock.
    lock.unlock();
    if (Clock::now() >= deadline) {
      throw Fail(Code::kDeadlineExceeded, "{}: waited {} ms{}", doing, patience.count(), Missing());
    }
    notice.Tell([this] { return Missing(); });
  }
  std::lock_guard lock(mutex_);
  if (refused_) throw Fail(refused_->code(), "{}: {}", doing, refused_->what());
}

// Returns the processes that are missing, for the error of a worker that could not join.
std::string Worker::Missing() {
  return Run([&](ClientNode& node, Time) -> std::string {
    std::vector<std::string> missing;
    const auto& servers = node.member().epoch().servers;
    for (size_t i = 0; i < servers.size(); ++i) {
      if (servers[i].state == Epoch::State::kAwaited) missing.push_back(Format("server {}", i));
    }
    if (!node.joined() || missing.empty()) {
      std::lock_guard lock(mutex_);
      return Format(" for the head{}{}", out_of_reach_.empty() ? "" : ": ", out_of_reach_);
    }
    return Format(": {} of {} servers have come, {} {} missing{}", servers.size() - missing.size(),
                  servers.size(), Join(missing, " and "), missing.size() == 1 ? "is" : "are",
                  node.member().link() == kNoLink ? "; the head is out of reach" : "");
  });
}

Worker::~Worker() {
  if (!is_of_this_process()) {  // the threads belong to the parent
    [[maybe_unused]] auto* const thread = thread_.release();
    [[maybe_unused]] auto* const pool = pool_.release();
    [[maybe_unused]] auto* const host = new (std::nothrow) std::shared_ptr<void>(std::move(host_));
    [[maybe_unused]] auto* const carrier =
        new (std::nothrow) std::shared_ptr<const Transport>(std::move(carrier_));
    return;
  }
  if (thread_ != nullptr) thread_->Stop();
}

void Worker::Stop() noexcept {
  try {
    Run([](ClientNode& node, Time) { node.SayGoodbye(); });
  } catch (const std::exception& error) {
    static_cast<void>(error);  // the servers then wait for the worker
  }
  thread_->Stop();
}

void Worker::KeepHost() const {
  // Kept until the process ends.
  if (host_ == nullptr || !after_leave_) return;
  try {
    static auto* const hosts = new std::vector<std::shared_ptr<void>>;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    hosts->push_back(host_);
  } catch (const std::bad_alloc&) {
    return;  // the services then end with this worker
  }
}

bool Worker::is_over() const {
  if (stores_.is_over()) return true;
  std::lock_guard lock(mutex_);
  return refused_.has_value();
}

bool Worker::HasLostItsPlace(std::chrono::nanoseconds patience) {
  if (is_over()) return true;
  return Run([&](const ClientNode& node, Time now) {
    if (node.client().closed() || node.member().refused()) return true;
    const Time lost_since = node.member().lost_since();
    if (lost_since != kNever && now - lost_since > patience.count()) return true;
    const auto& workers = node.member().epoch().workers;
    return !is_observer() && workers[static_cast<size_t>(rank_)].IsOver();
  });
}

CallPtr Worker::NewCall(const std::shared_ptr<Worker>& worker, const std::string& verb,
                        uint32_t store, std::function<void()> interrupt) {
  auto call = std::make_shared<Call>(
      verb,
      [weak = std::weak_ptr(worker)](const std::function<bool()>& done,
                                     std::chrono::nanoseconds longest) {
        const std::shared_ptr<Worker> locked = weak.lock();
        return locked != nullptr && locked->is_of_this_process() &&
               locked->PollUntil(done, longest);
      },
      std::move(interrupt));
  call->store = store;
  call->cancel = [weak = std::weak_ptr(worker)](const CallPtr& self) {
    const std::shared_ptr<Worker> locked = weak.lock();
    if (locked != nullptr && locked->is_of_this_process()) locked->calls().Abandon(self);
  };
  return call;
}

std::vector<uint64_t> Worker::AddStats(std::span<const std::string> names, StoreStats* stats) {
  return Run([&](ClientNode& node, Time now) {
    node.AddStats(now, stats);
    for (PeerStats& peer : stats->peers) {
      const Peer::Kind kind =
          &peer == stats->peers.data() ? Peer::Kind::kHead : Peer::Kind::kServer;
      const auto index = static_cast<uint32_t>(&peer - stats->peers.data());
      peer.traffic = thread_->TrafficOf({kind, kind == Peer::Kind::kHead ? 0 : index - 1});
      stats->traffic += peer.traffic;
    }
    std::vector<uint64_t> rounds;
    rounds.reserve(names.size());
    for (const std::string& name : names) rounds.push_back(node.client().RoundOf(name));
    return rounds;
  });
}

// Ends all calls with an error, because the node has stopped.  Runs under the node's lock.
void Worker::Broken(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    refused_ = error;
    joined_changed_.notify_all();
  }
  calls_->Break(error);
}

// Handles the changes of the node: joining, and outcomes of operations.  Runs under the node's
// lock.
void Worker::OnChange(ClientNode* node) {
  if (!joined_ || (!refused_ && node->member().refused())) {
    const Epoch& epoch = node->member().epoch();
    // An observer does not wait for missing servers.
    const bool all_there =
        node->joined() &&
        (is_observer() || std::ranges::none_of(epoch.servers, [](const Epoch::Seat& server) {
           return server.state == Epoch::State::kAwaited;
         }));
    const bool has_ended =
        node->joined() && !epoch.servers.empty() &&
        std::all_of(epoch.servers.begin(), epoch.servers.end(),
                    [](const auto& s) { return s.state == Epoch::State::kLeft; });
    std::lock_guard lock(mutex_);
    if (!refused_) refused_ = node->member().refused();
    if (!joined_ && !refused_ && has_ended) {
      refused_ =
          Error(Code::kFailedPrecondition,
                Format("the job has ended: {}, and the servers have left{}", HowAllEnded(epoch),
                       is_observer() ? ""
                                     : "; a process that needs several stores makes them before it "
                                       "closes the last one"));
    }
    if (!joined_ && !refused_ && node->member().head_has_ended()) {
      refused_ =
          Error(Code::kUnavailable, "the process of the head has ended, and nobody can join");
    }
    if (all_there && !joined_ && !refused_) {
      joined_ = true;
      rank_ = node->client().rank();
      workers_ = static_cast<int>(epoch.workers.size());
      rejoined_ = node->client().rejoined();
      servers_ = static_cast<int>(epoch.servers.size());
      policy_ = epoch.policy;
    }
    if (joined_ || refused_) joined_changed_.notify_all();
  }
  calls_->Take(node->TakeOutcomes());
}

}  // namespace tkv
