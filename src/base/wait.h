// The loop in which every thread of the user waits.

#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/duration.h"
#include "base/process.h"

namespace tkv {

// Waits until the condition holds.  Returns false if the deadline passes first.
// The condition and `rest(longest)` run with the lock; `rest` waits for a change, at most that
// long.  The interrupt, if there is one, is called without the lock about every 50 ms.  An
// exception from it ends the wait, with the lock held again.  `lock` may be null if there is
// nothing to lock.
template <typename Condition, typename Rest>
bool WaitUntil(std::unique_lock<std::mutex>* lock, std::chrono::steady_clock::time_point deadline,
               const std::function<void()>& interrupt, Condition condition, Rest rest) {
  struct Unlocked {
    explicit Unlocked(std::unique_lock<std::mutex>* l) : lock(l) {
      if (lock != nullptr) lock->unlock();
    }
    ~Unlocked() {
      if (lock != nullptr) lock->lock();
    }
    std::unique_lock<std::mutex>* lock;
  };
  while (!condition()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    rest(std::min<std::chrono::nanoseconds>(deadline - now, kInterruptEvery));
    if (condition() || !interrupt) continue;
    const Unlocked unlocked(lock);
    interrupt();
  }
  return true;
}

// Waits in the same way for a condition whose changes are notified.
template <typename Condition>
bool WaitUntil(std::unique_lock<std::mutex>* lock, std::condition_variable* changed,
               std::chrono::steady_clock::time_point deadline,
               const std::function<void()>& interrupt, Condition condition) {
  return WaitUntil(lock, deadline, interrupt, condition,
                   [&](std::chrono::nanoseconds longest) { changed->wait_for(*lock, longest); });
}

}  // namespace tkv
