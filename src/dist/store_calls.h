// The calls of one store of a worker: starts them, waits for them, and reports the errors of those
// for which nobody has waited.

#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/memory_error.h"
#include "dist/transfers.h"
#include "job/call.h"
#include "job/worker.h"
#include "metrics/counters.h"
#include "tkv/kvstore.h"

namespace tkv {

// Thread-safe.
class StoreCalls {
 public:
  StoreCalls(std::shared_ptr<Worker> worker, uint32_t store, const StoreOptions& options)
      : worker_(std::move(worker)), store_(store), options_(options) {}

  // Calls f, and counts the call of the verb and its failure.  The failure of a ticket is counted
  // when a later verb or Stats looks at it.
  //   called  the name by which errors know the verb
  //   throws  as f; memory that is lacking becomes an error that names the verb
  template <typename F>
  std::invoke_result_t<F&> Counted(Verb verb, std::string_view called, F f) {
    counts_.verbs.Called(verb);
    if (worker_->stores().has_failed_closes()) CloseFailedStores();
    try {
      return NamedWhereMemoryEnds(called, f);
    } catch (...) {
      counts_.verbs.Failed(verb);
      throw;
    }
  }
  // Calls `wait`, and counts the wait of the calling thread and its time.
  template <typename F>
  auto Timed(WaitCause cause, F wait) {
    struct Timer {
      ~Timer() { counts->waits.Add(cause, NodeThread::Now() - begin); }
      Counts* counts;
      WaitCause cause;
      Time begin = NodeThread::Now();
    } const timer{&counts_, cause};
    return wait();
  }
  void AddCountsTo(StoreStats* stats);

  // Marks the store as closed.  Errors of calls that this close cancels are then for their tickets
  // alone.
  void Close() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }
  // Checks that this process has made the store, and not a parent of it before fork().
  //   throws  kFailedPrecondition
  void CheckProcess(std::string_view verb) const;
  // Checks that the store is open and was made by this process.
  //   throws  kFailedPrecondition
  void CheckOpen(std::string_view verb) const;

  CallPtr New(const std::string& verb) {
    return Worker::NewCall(worker_, verb, store_, options_.interrupt);
  }
  // Returns an operation of this store.
  //   record  its key; null: it is of the whole store
  Operation Make(Operation::Request request, const std::string& verb,
                 const KeyRecord* record) const;
  // Starts one operation as a call of its own.
  CallPtr Start(const std::string& verb, Operation operation);
  // Starts one operation and waits for it.
  //   blocks, throws  as Await, with the store's patience
  Outcome AwaitOutcome(const std::string& verb, Operation operation);
  // Returns the first record of whose key only some parts have this worker's last push, so that the
  // user has to repeat it; null if there is none.  Asks the servers about pushes that have failed.
  //   blocks, throws  as Await, with the store's patience
  RecordPtr FirstToRepeat(const std::string& verb, std::span<const RecordPtr> records);
  // An operation of a call, and the values that it pushes; null: none.
  struct Part {
    Operation operation;
    const PushSource* source = nullptr;
  };
  // Starts all operations of a call.  Operations whose values are on GPUs start when the values
  // have arrived.
  //   blocks  for each batch of copies from GPUs, at most the patience
  void Launch(const CallPtr& call, std::vector<Part> parts);
  // Returns the longest wait for a call.  Operations have deadlines of their own, and this longer one
  // is for a thread that is stuck.
  std::chrono::nanoseconds LongestWait(std::chrono::nanoseconds patience) const;
  // Waits for a call.  A call whose wait fails is cancelled.
  //   throws  the error of the call, kDeadlineExceeded, and what the interrupt throws
  void Await(const CallPtr& call, std::chrono::nanoseconds patience);
  void Await(const CallPtr& call) { Await(call, options_.patience); }
  // Cancels a call for which nobody waits any more.  The call may have begun.
  void Abandon(const CallPtr& call);
  // Returns the ticket of a call, whose error a later verb reports if nobody waits.  Without memory
  // for that it waits for the call itself.
  Ticket Tracked(const CallPtr& call);
  // Throws the error of an earlier call for which nobody has waited.  Only calls with one of `keys`
  // count; without keys, all calls do.
  void RaiseUnseen(std::string_view verb, std::span<const KeyView> keys);

  // Waits until no operation under way uses the array.
  //   blocks, throws  as Storage::WaitReadable and WaitWritable
  void WaitFor(const NDArray& array, Access access);

 private:
  // Tells the servers about stores that this thread has closed after a failure.  Its program goes
  // on, so others must not wait for this worker there.
  void CloseFailedStores() noexcept;
  struct Counts {
    VerbCounts verbs;
    SharedWaitCounts waits;
  };
  static void ResendParams(const Call& call);
  void CountEnd(const CallPtr& call);

  const std::shared_ptr<Worker> worker_;
  const uint32_t store_;
  const StoreOptions& options_;
  std::atomic<bool> is_closed_ = false;
  Counts counts_;

  // Guards the members below.  Never held during a wait.
  std::mutex mutex_;
  std::vector<CallPtr> unreported_;  // calls that perhaps nobody waits for
};

}  // namespace tkv
