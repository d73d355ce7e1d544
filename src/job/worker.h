// The connection of this process to a job, as one incarnation of a worker or as an observer.  All
// stores of the worker share the connection.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "job/call.h"
#include "job/job_trace.h"
#include "job/node_thread.h"
#include "job/open_stores.h"
#include "job/running_calls.h"
#include "tkv/kvstore.h"

namespace tkv {

class SaveSchedule;

// Returns a new number for an attempt to join, which differs in each call and process.  The head
// knows a repeated HELLO by it.  The incarnation is another number, which the head gives.
uint64_t LifeNumber();

struct WorkerOptions {
  std::string job;
  // The job's URL for others; empty: no other process can find the job.
  std::string url;
  Role role = Role::kWorker;
  Rank rank = kNoRank;           // kNoRank: any free rank
  Rank worker_beside_head = -1;  // as in Job
  Rank server_beside_head = -1;
  std::unique_ptr<Endpoint> endpoint;
  // Returns the address of a peer that the EPOCH does not name: the head's.
  std::function<std::string(const Peer&)> address_of;
  // The workers on this machine, as far as the launcher reports.
  int local_workers = 1;
  // Servers in this process, which live as long as the worker.
  std::shared_ptr<void> host;
  // Called after the worker has left the job, on the thread that closes its last store.
  std::function<void()> after_leave;
};

class Worker final {
 public:
  // Joins the job.
  //   doing  begins the message of an error: "connect"
  //   blocks  a worker: until the head and all servers are there, at most the patience
  //           an observer: until the head is there, at most the server patience
  //   throws  kDeadlineExceeded, kFailedPrecondition (all workers have joined, the job has ended),
  //           kUnauthenticated, kUnavailable (the head has ended), kResourceExhausted
  Worker(const std::string& doing, const StoreOptions& store, WorkerOptions options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool is_observer() const { return role_ == Role::kObserver; }
  const std::string& job() const { return job_; }
  const std::string& url() const { return url_; }
  int rank() const { return rank_; }  // -1 for an observer
  int workers() const { return workers_; }
  int local_workers() const { return local_workers_; }
  // Returns true if this rank has lived before, and this life does not begin anew.
  bool rejoined() const { return rejoined_; }
  int servers() const { return servers_; }  // in the job
  // The policy of the job, which its head has set.
  Epoch::Policy policy() const { return policy_; }
  bool is_of_this_process() const { return birth_ == ForkGeneration(); }

  OpenStores& stores() { return stores_; }
  RunningCalls& calls() { return *calls_; }
  // The schedules by which stores of this worker save, which the module `dist` defines.
  struct SaveSchedules {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<SaveSchedule>> by_folder;
  };
  SaveSchedules& save_schedules() { return save_schedules_; }
  // Returns true if the last store was closed, or the worker was refused or broke.  A new store
  // then needs a new worker.
  bool is_over() const;
  // Returns true if this incarnation takes part no more: `is_over`, or the head says that it is
  // dead or has left, or that another one has its rank.  Also if the head has been out of reach for
  // longer than the patience.
  bool HasLostItsPlace(std::chrono::nanoseconds patience);

  // Calls f(client, now) under the node's lock.
  template <typename F>
  auto Run(F f) {
    return thread_->Run(
        [&](Node& node, Time now) { return f(static_cast<ClientNode&>(node), now); });
  }
  // Calls f with the client and `arguments` under the node's lock: `Ask(&Client::rank)`.
  template <typename F, typename... Arguments>
  auto Ask(F f, const Arguments&... arguments) {
    return Run([&](ClientNode& node, Time) {
      return std::invoke(f, std::as_const(node).client(), arguments...);
    });
  }
  // As Client::BeginAnew: `rejoined` is false from then on.  Call it before anything else.
  void BeginAnew() {
    Run([](ClientNode& node, Time) { node.BeginAnew(); });
    rejoined_ = false;
  }
  // Returns a call of a store of this worker.  The call may outlive the worker.
  static CallPtr NewCall(const std::shared_ptr<Worker>& worker, const std::string& verb,
                         uint32_t store, std::function<void()> interrupt);
  // See NodeThread.
  bool PollUntil(const std::function<bool()>& done, std::chrono::nanoseconds longest) {
    return thread_->PollUntil(done, longest.count());
  }
  // Has the node's own thread poll at once, because no caller waits for the operations that were
  // launched last.
  void GoOn() { thread_->GoOn(); }
  // Adds the counters of the worker and of its peers to `stats`.  Returns the rounds of the keys
  // with these canonical names.
  std::vector<uint64_t> AddStats(std::span<const std::string> names, StoreStats* stats);
  JobTrace& trace() { return trace_; }  // the trace of the servers, and its file
  // Keeps the servers in this process until the process ends, because this worker leaves without
  // waiting for the others.
  void KeepHost() const;
  void AfterLeave() {
    if (after_leave_) after_leave_();
  }
  // Stops the node's thread and closes all links.  A worker that has left tells the servers first
  // if the head is lost.
  void Stop() noexcept;

 private:
  void AwaitJoin(const std::string& doing, const StoreOptions& store);
  std::string Missing();  // processes, in words
  void OnChange(ClientNode* node);
  void Broken(const Error& error);

  const Role role_;
  const std::string job_, url_;
  // Declared before the thread, so that the transport outlives the endpoint that it opened.
  std::shared_ptr<const Transport> carrier_;
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

  OpenStores stores_;
  JobTrace trace_;
  SaveSchedules save_schedules_;

  // Guards the members below.
  mutable std::mutex mutex_;
  std::condition_variable joined_changed_;
  bool joined_ = false;
  std::optional<Error> refused_;
  std::string out_of_reach_;  // the reason why the head cannot be reached

  // Used by the thread.
  std::unique_ptr<RunningCalls> calls_;
  // Last, so that the thread ends before the members that it uses.
  std::unique_ptr<NodeThread> thread_;
};

}  // namespace tkv
