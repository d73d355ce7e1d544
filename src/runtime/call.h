// Calls of a distributed store that are under way: what users hold as tickets.

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
#include "runtime/gpu_ends.h"
#include "store/checks.h"
#include "tkv/kvstore.h"

namespace tkv {

struct KeyRecord;

// One call: the operations that it has started, and what is to be done when they are.  Guarded by
// its own mutex; a ticket is a pointer to it.  A child of fork() has it as it was at the fork and
// never locks it: the store's threads are the parent's, and one of them may have held the lock.
class Call final : public PendingCall, public std::enable_shared_from_this<Call> {
 public:
  // Does the store's work until the condition holds, at most so long; false where it cannot.
  using Help = std::function<bool(const std::function<bool()>& done, std::chrono::nanoseconds)>;

  // Tickets and busy arrays may outlive the store, so what helps has to bear its being gone.
  Call(std::string verb, Help help, std::function<void()> interrupt)
      : verb_(std::move(verb)), help_(std::move(help)), interrupt_(std::move(interrupt)) {}

  bool done() const noexcept override {
    const auto lock = Lock();
    return done_;
  }
  // Its error is told once: here, or by the store if nobody asks here.
  void Wait(std::chrono::nanoseconds patience) override {
    WaitDone(patience);
    const auto lock = Lock();
    is_looked_at_ = true;
    if (error_) throw Error(*error_);
  }
  // Until the call has ended, well or not; its error stays untold.
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
    if (give_up) give_up(shared_from_this());
    return true;
  }
  std::optional<Error> failure() const override {
    const auto lock = Lock();
    return error_;
  }
  // Until every push of it is accepted, so that its sources are free.
  void WaitAccepted(std::chrono::nanoseconds patience) {
    WaitFor(patience, [this] { return done_ || unaccepted_ == 0; });
  }
  // Whether it has ended with a push that no server holds.
  bool has_lost_push() const {
    const auto lock = Lock();
    return has_lost_push_;
  }
  bool accepted() const {
    const auto lock = Lock();
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
  //   before_done  runs where that was the last one, before anybody learns that the call is done
  void End(bool was_unaccepted, const Outcome& outcome,
           const std::function<void()>& before_done = {}) {
    std::unique_lock lock(mutex_);
    if (was_unaccepted) --unaccepted_;
    has_lost_push_ = has_lost_push_ || (was_unaccepted && outcome.error);
    if (outcome.error && !error_) error_ = outcome.error;
    round_ = outcome.round;
    if (on_outcome && !outcome.error) on_outcome(outcome);
    if (--left_ > 0) return;
    const bool good = !error_;
    lock.unlock();
    // What it holds goes before anybody learns that the call is done: outputs on GPUs are free then.
    if (auto finishing = std::exchange(finish, nullptr); finishing && good) {
      try {
        finishing();
      } catch (...) {
        const Error failed = ErrorNow(verb_);
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
  // All of it has ended.
  void Complete(const std::optional<Error>& error = {}) {
    std::unique_lock lock(mutex_);
    if (error && !error_) error_ = error;
    done_ = true;
    changed_.notify_all();
    const auto on_end = std::exchange(on_end_, {});
    lock.unlock();
    for (const auto& ended : on_end) ended();
  }
  // The round of the outcome of its last operation.
  uint64_t round() const {
    std::lock_guard lock(mutex_);
    return round_;
  }
  std::optional<Error> UnseenError() const {
    std::lock_guard lock(mutex_);
    return is_looked_at_ ? std::nullopt : error_;
  }
  void LookedAt() {
    std::lock_guard lock(mutex_);
    is_looked_at_ = true;
  }

  const std::string& verb() const { return verb_; }

  uint32_t store = 0;       // its number
  bool is_counted = false;  // its end; guarded by its store's mutex
  std::vector<OpId> ops;
  std::vector<std::shared_ptr<const KeyRecord>> keys;
  std::vector<Bytes> sources, targets;  // memory that its operations read, and that they write
  std::function<void()> finish;         // when all operations have succeeded
  std::vector<AwaitedWork> awaited;     // by `finish`, which has begun it: it ends by itself
  std::function<void(const Outcome&)> on_outcome;  // of each that has succeeded; with the lock
  std::function<void(const std::shared_ptr<Call>&)> give_up;  // as its store does it

 private:
  bool is_of_this_process() const noexcept { return birth_ == ForkGeneration(); }
  // Of a child of fork(): no lock.
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
    // While a caller waits it does the node's work itself, unless another caller is at that.
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
  size_t left_ = 0;
  uint64_t round_ = 0;
  size_t unaccepted_ = 0;
  bool has_lost_push_ = false;
  bool done_ = false;
  bool is_completing_ = false;  // its operations have ended, and it awaits GPUs
  bool is_looked_at_ = false;
  std::optional<Error> error_;
  std::vector<std::function<void()>> on_end_;
};

using CallPtr = std::shared_ptr<Call>;

// What a call is to the arrays that it writes: done when the call is.
class WrittenPart final : public Pending {
 public:
  explicit WrittenPart(CallPtr call) : call_(std::move(call)) {}
  bool done() const noexcept override { return call_->done(); }
  void Wait(std::chrono::nanoseconds patience) override { call_->WaitDone(patience); }

 private:
  const CallPtr call_;
};

// What a call is to its sources: done when they are free.
class AcceptedPart final : public Pending {
 public:
  explicit AcceptedPart(CallPtr call) : call_(std::move(call)) {}
  bool done() const noexcept override { return call_->accepted(); }
  void Wait(std::chrono::nanoseconds patience) override { call_->WaitAccepted(patience); }

 private:
  const CallPtr call_;
};

}  // namespace tkv
