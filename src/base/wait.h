// The one loop in which a thread waits.

#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/duration.h"
#include "base/process.h"

namespace tkv {

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
