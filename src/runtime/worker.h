// One life of a worker, or of an observer, in this process: its tie to the job, which all its stores
// share.

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/call.h"
#include "runtime/job_trace.h"
#include "runtime/node_thread.h"
#include "tkv/kvstore.h"

namespace tkv {

struct SavingStores;

// Tells lives apart, those of other processes too: a repeated HELLO is no second life.
uint64_t LifeNumber();

struct WorkerOptions {
  std::string job;
  std::string url;  // of the job, for others; empty: nobody else can find it
  Role role = Role::kWorker;
  Rank rank = kNoRank;           // kNoRank: any that is free
  Rank worker_beside_head = -1;  // as in Job
  Rank server_beside_head = -1;
  std::unique_ptr<Endpoint> endpoint;
  std::function<std::string(const Peer&)> address_of;
  int local_workers = 1;       // on this machine, as far as the start of the job tells
  std::shared_ptr<void> host;  // servers in this process: they live as long as the worker
  // Called when the worker has left, by whoever closes its last store.
  std::function<void()> after_leave;
};

class Worker final {
 public:
  // Joins the job.
  //   doing  begins the message of an error: "connect"
  //   blocks  until the head and all servers are there, at most the server patience
  //   throws  kDeadlineExceeded, kFailedPrecondition (all workers have joined), kUnauthenticated
  Worker(const std::string& doing, const StoreOptions& store, WorkerOptions options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool is_observer() const { return role_ == Role::kObserver; }
  const std::string& job() const { return job_; }
  const std::string& url() const { return url_; }
  int rank() const { return rank_; }  // -1: of an observer
  int workers() const { return workers_; }
  int local_workers() const { return local_workers_; }
  bool rejoined() const { return rejoined_; }
  int servers() const { return servers_; }
  Epoch::Policy policy() const { return policy_; }  // of the job, which its head has set
  bool is_of_this_process() const { return birth_ == ForkGeneration(); }

  // The number of a new store, the same on all ranks that make their stores in the same order.
  //   throws  kFailedPrecondition  the last store has just been closed
  uint32_t OpenStore();
  uint32_t store_count() const;  // that have been opened
  // One that another worker has made, which an observer looks at.
  void ObserveStore(uint32_t store);
  // True where that was the last one, whose worker is to leave the job.
  bool CloseStore(uint32_t store);
  // The stores of this worker that save into a folder by themselves; null without a folder.
  //   throws  kInvalidArgument  another store saves there, and not as often; and as AutoSave
  std::shared_ptr<SavingStores> StoresSavingIn(const std::string& folder, const std::string& every);
  // No store is open any more, or the life is over: a new store needs a new one.
  bool is_over() const;

  // Calls f(client, now) with the client to itself.
  template <typename F>
  auto Run(F f) {
    return thread_->Run(
        [&](Node& node, Time now) { return f(static_cast<ClientNode&>(node), now); });
  }
  // A call of a store of this worker; it may outlive the worker.
  static CallPtr NewCall(const std::shared_ptr<Worker>& worker, const std::string& verb,
                         uint32_t store, std::function<void()> interrupt);
  // Starts all operations of a call at once.
  void Launch(const CallPtr& call, std::vector<Operation> operations);
  // Has the call expect all of some parts, each of which is launched then, or ended.
  static void Expect(const CallPtr& call, std::span<const std::vector<Operation>> parts);
  void LaunchPart(const CallPtr& call, std::vector<Operation> operations);
  // Ends some that have not been launched.
  void EndPart(const CallPtr& call, const std::vector<Operation>& operations, const Error& error);
  // See NodeThread.
  bool PollUntil(const std::function<bool()>& done, std::chrono::nanoseconds longest) {
    return thread_->PollUntil(done, longest.count());
  }
  // Nobody waits for what was launched last.
  void GoOn() { thread_->GoOn(); }
  // The caller does not wait any longer: nothing of it is written to from here on, and what it has
  // pushed is read from a copy.
  void GiveUp(const CallPtr& call);
  // Its sources may change from now on; it goes on with copies.
  void Detach(const CallPtr& call);
  // Ends every call of a store that is under way, so that nobody waits for one that cannot end.
  void CancelCalls(uint32_t store, const char* why);
  std::vector<CallPtr> CallsOf(uint32_t store);
  // Adds what is counted of the worker, and of its peers; the rounds of these keys, by their
  // canonical names.
  std::vector<uint64_t> AddStats(std::span<const std::string> names, StoreStats* stats);
  // What operations of this worker do is noted, or no longer.
  void Record(bool on);
  WorkerTrace::Noted TakeNoted();
  JobTrace& trace() { return trace_; }
  // Owners of memory of calls that have ended; that of other frameworks is to be freed by a thread
  // of the user's.
  std::vector<std::shared_ptr<const void>> TakeOwners();
  // A worker that leaves without waiting for the others leaves what it hosts to the process.
  void KeepHost() const;
  void AfterLeave() {
    if (after_leave_) after_leave_();
  }
  void Stop() { thread_->Stop(); }

 private:
  void AwaitJoin(const std::string& doing, const StoreOptions& store);
  std::string Missing();
  void OnChange(ClientNode* node);
  void Broken(const Error& error);
  void ReleaseMemory(const Call& call);
  void KeepOwners(Call* call);

  const Role role_;
  const std::string job_, url_;
  std::shared_ptr<const Transport>
      carrier_;  // before others: it ends after the endpoint that it opened
  const unsigned birth_ = ForkGeneration();
  std::shared_ptr<void> host_;
  const std::function<void()> after_leave_;
  std::unique_ptr<BufferPool> pool_ = std::make_unique<BufferPool>();
  int rank_ = 0;
  int workers_ = 0;
  const int local_workers_;
  bool rejoined_ = false;
  int servers_ = 0;
  Epoch::Policy policy_ = Epoch::Policy::kFail;

  struct Running {
    CallPtr call;
    bool is_unaccepted = false;
  };
  boost::unordered_flat_map<OpId, Running> calls_;  // guarded by the node's lock
  WorkerTrace noted_;                               // guarded by the node's lock
  std::optional<Error> broken_;  // why the node does nothing any more; guarded by the node's lock

  JobTrace trace_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable joined_changed_;
  bool joined_ = false;
  std::optional<Error> refused_;
  std::string out_of_reach_;  // why the head cannot be reached
  uint32_t store_count_ = 0;
  std::set<uint32_t> open_stores_;
  bool has_closed_ = false;
  std::map<std::string, std::shared_ptr<SavingStores>> saving_stores_;  // by their folders
  std::vector<std::shared_ptr<const void>> ended_owners_;

  std::unique_ptr<NodeThread> thread_;  // last: it ends before what it works on
};

}  // namespace tkv
