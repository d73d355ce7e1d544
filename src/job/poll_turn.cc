#include "job/poll_turn.h"

#include <chrono>

#include "job/steady_time.h"

namespace tkv {
namespace {

constexpr Time kRestBehindCaller = 2 * kMillisecond;
constexpr Time kLongestRest = kSecond;

}  // namespace

bool PollTurn::BeginOwn() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const Time now = SteadyTime();
    if (!is_callers_ && now >= rest_until_) {
      is_own_ = true;
      return true;
    }
    own_sleeps_until_ = is_callers_ ? now + kLongestRest : rest_until_;
    changed_.wait_for(lock, std::chrono::nanoseconds(own_sleeps_until_ - now));
    own_sleeps_until_ = 0;
  }
  return false;
}

void PollTurn::EndOwn() {
  std::lock_guard lock(mutex_);
  is_own_ = false;
  if (is_callers_) changed_.notify_all();
}

bool PollTurn::BeginCaller(Time deadline) {
  std::unique_lock lock(mutex_);
  if (is_callers_ || stopped_) {
    others_wait_until_ = deadline;
    return false;
  }
  is_callers_ = true;
  if (is_own_) {
    wake_();
    changed_.wait(lock, [this] { return !is_own_; });
  }
  return true;
}

void PollTurn::EndCaller(bool is_busy) {
  std::lock_guard lock(mutex_);
  is_callers_ = false;
  const Time now = SteadyTime();
  const bool may_rest = !is_busy && now >= others_wait_until_;
  rest_until_ = may_rest ? now + kRestBehindCaller : 0;
  // The node's thread wakes by itself in time, unless it waits for longer.
  if (stopped_ || own_sleeps_until_ > rest_until_) changed_.notify_all();
}

void PollTurn::EndRest() {
  {
    std::lock_guard lock(mutex_);
    if (rest_until_ == 0) return;
    rest_until_ = 0;
  }
  changed_.notify_all();
}

void PollTurn::Stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

void PollTurn::AwaitCaller() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !is_callers_; });
}

}  // namespace tkv
