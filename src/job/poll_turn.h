// The decision which thread does the work of a node.

#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "wire/effects.h"

namespace tkv {

// The turn to poll a node: its own thread has it, or a caller that waits for a result.
// After a caller's turn the node's own thread rests for a moment, because most threads that have
// waited soon wait again.
// Thread-safe.
class PollTurn {
 public:
  // wake  ends the sleep of the node's own thread in its poll
  explicit PollTurn(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Begins a turn of the node's own thread.
  //   blocks   while a caller has the turn, and for the rest
  //   returns  false  stopped: there is no turn any more
  bool BeginOwn();
  void EndOwn();

  // Begins the turn of a caller.
  //   deadline  the end of the caller's wait, whether it gets the turn or not
  //   blocks    until the node's own thread has ended its turn
  //   returns   false at once if another caller has the turn, or it was stopped
  bool BeginCaller(Time deadline);
  // Ends it.
  //   is_busy  operations are under way: the node's own thread does not rest
  void EndCaller(bool is_busy);
  // Returns true if a caller has the turn, or is about to get it.
  bool is_callers() const { return is_callers_; }

  // Ends the rest of the node's own thread.
  void EndRest();

  // Ends all turns: who polls has to look, and BeginOwn and BeginCaller return false.
  void Stop() noexcept;
  bool stopped() const { return stopped_; }
  // Waits until no caller has the turn.
  void AwaitCaller();

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_own_ = false;  // the node's own thread has the turn
  std::atomic<bool> is_callers_{false};
  std::atomic<bool> stopped_{false};
  Time others_wait_until_ = 0;  // the last deadline of a caller that did not get the turn
  Time rest_until_ = 0;         // the end of the rest of the node's own thread
  Time own_sleeps_until_ = 0;   // the end of its present wait for a turn; 0: it does not wait
};

}  // namespace tkv
