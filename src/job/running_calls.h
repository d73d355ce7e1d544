// The calls of a worker that are under way.

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "job/call.h"
#include "job/job_trace.h"
#include "job/node_thread.h"
#include "node/node.h"

namespace tkv {

// Starts the operations of calls on the worker's node.  The outcome of the last operation ends its
// call.
// Thread-safe, except for the functions that need the node's lock.
class RunningCalls {
 public:
  explicit RunningCalls(NodeThread* thread) : thread_(thread) {}

  // Starts all operations of a call at once.
  void Launch(const CallPtr& call, std::vector<Operation> operations);
  // Makes the call expect all operations of some parts.  Each part has to be launched or ended
  // later.
  static void Expect(const CallPtr& call, std::span<const std::vector<Operation>> parts);
  // Starts the operations of one part.
  void LaunchPart(const CallPtr& call, std::vector<Operation> operations);
  // Ends the operations of a part that has not been launched.
  void EndPart(const CallPtr& call, const std::vector<Operation>& operations, const Error& error);

  // Cancels a call whose caller waits no longer.  Afterwards nothing writes to its outputs, and its
  // pushes that go on read from copies.
  void Abandon(const CallPtr& call);
  // Ends all calls of this worker for lack of memory, and refuses later ones.  Takes no memory.
  void BreakForLack();
  // Continues a call with copies of its sources, so that the sources may change.
  void Detach(const CallPtr& call);
  // Cancels every call of a store, so that nobody waits for a call that cannot end.
  // Without memory for that, all calls of this worker end with an error.
  //   why  the text of their error, whose code is kCancelled
  void CancelAll(uint32_t store, const char* why);
  // Returns the call of each operation of the store that is under way.  A call may be there twice.
  std::vector<CallPtr> Of(uint32_t store);
  // Takes the owners of the memory of calls that have ended.  A thread of the user has to free
  // them, because other frameworks own some of the memory.
  std::vector<std::shared_ptr<const void>> TakeOwners();

  // Starts or stops recording the operations.
  void Record(bool on);
  // Returns the operations that were recorded since the last call.
  WorkerTrace::Noted TakeNoted();

  // Handles outcomes of operations.  Needs the node's lock.
  void Take(const std::vector<Outcome>& outcomes);
  // Ends all calls with an error, also later ones, because the node has stopped.  Needs the node's
  // lock.
  void Break(const Error& error);

 private:
  // Calls f(node, now) under the node's lock.
  template <typename F>
  auto Run(F f) {
    return thread_->Run(
        [&](Node& node, Time now) { return f(static_cast<ClientNode&>(node), now); });
  }
  void ReleaseMemory(const Call& call);
  void KeepOwners(Call* call);

  NodeThread* const thread_;
  // The next three members are guarded by the node's lock.
  struct Running {
    CallPtr call;
    bool is_unaccepted = false;
  };
  boost::unordered_flat_map<OpId, Running> calls_;
  WorkerTrace noted_;
  std::optional<Error> broken_;  // the reason why the node does nothing any more

  std::mutex mutex_;  // guards `ended_owners_`
  std::vector<std::shared_ptr<const void>> ended_owners_;
};

}  // namespace tkv
