// Durations that cannot overflow, and the one loop in which a thread waits.

#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/process.h"

namespace tkv {

// A century: longer waits are cut to it, so that a deadline can be computed in nanoseconds.
inline constexpr std::chrono::milliseconds kLongestWait{std::chrono::hours{24 * 365 * 100}};

// The time of so many seconds, cut to 0 and a century; 0 of what is not a number.
inline std::chrono::milliseconds MillisecondsOf(double seconds) {
  constexpr double kMost = static_cast<double>(kLongestWait.count());
  if (!(seconds > 0)) return std::chrono::milliseconds(0);
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds * 1000, kMost)));
}

// When a wait of so long ends that begins now.
template <typename Duration>
std::chrono::steady_clock::time_point DeadlineAfter(Duration longest) {
  const bool is_longest = longest >= kLongestWait;
  return std::chrono::steady_clock::now() +
         (is_longest ? std::chrono::nanoseconds(kLongestWait) : std::chrono::nanoseconds(longest));
}

// Waits with the lock until the condition holds or the deadline has passed; false in the latter
// case.  About every 50 ms the interrupt, where there is one, is called without the lock: what it
// throws ends the wait, with the lock held again.
template <typename Condition>
bool WaitUntil(std::unique_lock<std::mutex>* lock, std::condition_variable* changed,
               std::chrono::steady_clock::time_point deadline,
               const std::function<void()>& interrupt, Condition condition) {
  while (!condition()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    changed->wait_for(*lock, std::min<std::chrono::nanoseconds>(deadline - now, kInterruptEvery));
    if (condition() || !interrupt) continue;
    struct Relock {
      std::unique_lock<std::mutex>* lock;
      ~Relock() { lock->lock(); }
    };
    lock->unlock();
    const Relock relock{lock};
    interrupt();
  }
  return true;
}

}  // namespace tkv
