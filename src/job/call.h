// Calls of a distributed store that are under way.  The ticket of a push, pull or barrier is a
// pointer to one.

#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/duration.h"
#include "base/memory_error.h"
#include "base/process.h"
#include "base/wait.h"
#include "client/client.h"
#include "job/gpu_ends.h"
#include "store/checks.h"
#include "tkv/kvstore.h"

namespace tkv {

struct KeyRecord;

// A call: its operations, and the work to do when they have ended.
//
// Thread-safe: a mutex guards the private members.  The public ones below are set before the call
// is launched.  A child of fork() has a copy from the moment of the fork and never locks it.  The
// threads of the store belong to the parent, and one of them may have held the lock.
class Call final : public PendingCall, public std::enable_shared_from_this<Call> {
 public:
  // A function that does the store's work until the condition holds, for a limited time.  Returns
  // false if it cannot help.
  using Help = std::function<bool(const std::function<bool()>& done, std::chrono::nanoseconds)>;

  // Makes a call.  Tickets and busy arrays may outlive the store, so `help` must work after its
  // end.
  //   verb       the first word of errors
  //   interrupt  waiting threads call it about every 50 ms; an exception from it ends the wait
  Call(std::string verb, Help help, std::function<void()> interrupt)
      : verb_(std::move(verb)), help_(std::move(help)), interrupt_(std::move(interrupt)) {}

  bool done() const noexcept override {
    const auto lock = Lock();
    return done_;
  }
  // Waits until the call has ended, and throws its error, each time.  If nobody waits, a later verb
  // of the store throws it.
  void Wait(std::chrono::nanoseconds patience) override {
    WaitDone(patience);
    const auto lock = Lock();
    is_seen_ = true;
    if (error_) throw Error(*error_);
  }
  // Waits until the call has ended, with or without an error.  The error remains to be reported.
  void WaitDone(std::chrono::nanoseconds patience) {
    WaitFor(patience, [this] { return done_; });
  }
  void OnEnd(std::function<void()> ended) override {
    CheckCallable(ended);
    {
      const auto lock = Lock();
      if (!done_) {
        CheckProcess();
        on_end_.push_back(std::move(ended));
        return;
      }
    }
    ended();
  }
  bool Cancel() override {
    {
      const auto lock = Lock();
      if (done_ || is_completing_) return false;
    }
    CheckProcess();
    if (cancel) cancel(shared_from_this());
    return true;
  }
  std::optional<Error> failure() const override {
    const auto lock = Lock();
    return error_;
  }
  // Waits until servers have accepted all pushes of the call or it has ended, so that its sources
  // are free.  Does not throw the call's error.
  void WaitAccepted(std::chrono::nanoseconds patience) {
    WaitFor(patience, [this] { return done_ || unaccepted_ == 0; });
  }
  // Returns true if an operation failed before the servers had accepted its push; some parts of the
  // key may have it.
  bool has_lost_push() const {
    const auto lock = Lock();
    return has_lost_push_;
  }
  // Returns true if the call's sources are free: its pushes are accepted, or it has ended.
  bool accepted() const {
    const auto lock = Lock();
    return done_ || unaccepted_ == 0;
  }

  // ---- for the store; Expect, Accepted and End are called under the lock of its node
  // Sets how many operations have to end, and how many of them servers have to accept.
  void Expect(size_t operations, size_t pushes) {
    std::lock_guard lock(mutex_);
    operations_left_ = operations;
    unaccepted_ = pushes;
  }
  // Notes that servers have accepted one push.
  void Accepted() {
    std::lock_guard lock(mutex_);
    --unaccepted_;
    changed_.notify_all();
  }
  // Ends one operation.  The last one runs `finish` if all have succeeded, and completes the call,
  // at once or when the work in `awaited` has ended.
  //   was_unaccepted  it is a push that no server has accepted
  //   outcome         its error becomes the call's, unless the call has one
  //   before_done     runs after the last operation, before the call is reported done
  void End(bool was_unaccepted, const Outcome& outcome,
           const std::function<void()>& before_done = {}) {
    std::unique_lock lock(mutex_);
    if (was_unaccepted) --unaccepted_;
    has_lost_push_ = has_lost_push_ || (was_unaccepted && outcome.error);
    if (outcome.error && !error_) error_ = outcome.error;
    round_ = outcome.round;
    if (on_outcome && !outcome.error) on_outcome(outcome);
    if (--operations_left_ > 0) return;
    const bool good = !error_;
    lock.unlock();
    // Destroys the completion function before the call is reported done, so that GPU outputs are
    // already released.
    if (auto finishing = std::exchange(finish, nullptr); finishing && good) {
      try {
        finishing();
      } catch (...) {
        const Error failed = ErrorNowAtLeast(verb_);
        lock.lock();
        error_ = failed;
        lock.unlock();
      }
    }
    if (before_done) before_done();
    if (awaited.empty()) return Complete();
    lock.lock();
    is_completing_ = true;
    lock.unlock();
    CompleteAfterGpus(shared_from_this());
  }
  // Reports the call done and runs the functions that wait for its end.
  void Complete(const std::optional<Error>& error = {}) {
    std::unique_lock lock(mutex_);
    if (error && !error_) error_ = error;
    done_ = true;
    changed_.notify_all();
    const auto on_end = std::exchange(on_end_, {});
    lock.unlock();
    for (const auto& ended : on_end) ended();
  }
  // Returns the round of the last operation that ended.
  uint64_t round() const {
    std::lock_guard lock(mutex_);
    return round_;
  }
  // Returns the call's error if no user has seen it: neither Wait nor MarkSeen was called since.
  std::optional<Error> UnseenError() const {
    std::lock_guard lock(mutex_);
    return is_seen_ ? std::nullopt : error_;
  }
  void MarkSeen() {
    std::lock_guard lock(mutex_);
    is_seen_ = true;
  }

  const std::string& verb() const { return verb_; }

  uint32_t store = 0;  // the store's number
  // The store has counted the end in its statistics.  Guarded by the store's mutex.
  bool is_counted = false;
  std::vector<OpId> ops;
  std::vector<std::shared_ptr<const KeyRecord>> keys;
  // Memory that the operations read, and memory that they write.
  std::vector<Bytes> sources, targets;
  std::function<void()> finish;  // runs when all operations have succeeded
  // Work that `finish` has begun on GPUs and that ends by itself.
  std::vector<AwaitedWork> awaited;
  // Runs for each operation that has succeeded, with the lock.
  std::function<void(const Outcome&)> on_outcome;
  // Cancels the operations, and returns when the outputs are no longer written.  Set by the worker.
  std::function<void(const std::shared_ptr<Call>&)> cancel;

 private:
  bool is_of_this_process() const noexcept { return birth_ == ForkGeneration(); }
  // Locks the mutex; in a child of fork() it does not lock.
  std::unique_lock<std::mutex> Lock() const {
    return is_of_this_process() ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  }
  void CheckProcess() const {
    if (is_of_this_process()) return;
    throw Fail(Code::kFailedPrecondition,
               "{}: this call was begun before fork() in another process, where its store is; wait "
               "for it there",
               verb_);
  }
  template <typename Condition>
  void WaitFor(std::chrono::nanoseconds patience, Condition condition) {
    if (!is_of_this_process() && condition()) return;
    CheckProcess();
    std::unique_lock lock(mutex_);
    const auto locked_condition = [&] {
      std::lock_guard guard(mutex_);
      return condition();
    };
    // A waiting caller does the node's work itself, unless another caller is doing it.
    const auto rest = [&](std::chrono::nanoseconds longest) {
      lock.unlock();
      const bool has_helped = help_(locked_condition, longest);
      lock.lock();
      if (!has_helped && !condition()) changed_.wait_for(lock, longest);
    };
    if (!WaitUntil(&lock, DeadlineAfter(patience), interrupt_, condition, rest)) {
      throw Fail(Code::kDeadlineExceeded, "{}: not done after {} ms", verb_,
                 std::chrono::duration_cast<std::chrono::milliseconds>(patience).count());
    }
  }

  const unsigned birth_ = ForkGeneration();
  const std::string verb_;
  const Help help_;
  const std::function<void()> interrupt_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t operations_left_ = 0;
  uint64_t round_ = 0;
  size_t unaccepted_ = 0;
  bool has_lost_push_ = false;
  bool done_ = false;
  // The operations have ended, and GPU work is awaited.
  bool is_completing_ = false;
  bool is_seen_ = false;
  std::optional<Error> error_;
  std::vector<std::function<void()>> on_end_;
};

using CallPtr = std::shared_ptr<Call>;

// A call as its outputs see it: pending until the call is done.
class WrittenPart final : public Pending {
 public:
  explicit WrittenPart(CallPtr call) : call_(std::move(call)) {}
  bool done() const noexcept override { return call_->done(); }
  void Wait(std::chrono::nanoseconds patience) override { call_->WaitDone(patience); }

 private:
  const CallPtr call_;
};

// A call as its sources see it: pending until servers have accepted its pushes.
class AcceptedPart final : public Pending {
 public:
  explicit AcceptedPart(CallPtr call) : call_(std::move(call)) {}
  bool done() const noexcept override { return call_->accepted(); }
  void Wait(std::chrono::nanoseconds patience) override { call_->WaitAccepted(patience); }

 private:
  const CallPtr call_;
};

}  // namespace tkv
