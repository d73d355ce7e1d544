// Counters with no measurable cost.  A counter is a plain number if a lock that is held anyway
// protects it, else a relaxed atomic.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "tkv/stats.h"

namespace tkv {

// The number and the total time of waits.  Not thread-safe.
struct WaitCount {
  uint64_t count = 0;
  int64_t nanoseconds = 0;

  void Add(int64_t longer) {
    ++count;
    nanoseconds += longer;
  }
  WaitCount& operator+=(const WaitCount& other) {
    count += other.count;
    nanoseconds += other.nanoseconds;
    return *this;
  }
};

// The waits of a state machine, by cause.
class WaitCounts {
 public:
  WaitCount& of(WaitCause cause) { return counts_[static_cast<size_t>(cause)]; }
  void AddTo(StoreStats* stats) const;

 private:
  std::array<WaitCount, kWaitCauses> counts_{};
};

// The present wait of one object, if it waits.  Any clock may be used for `now`, always the same
// one.
class CurrentWait {
 public:
  static constexpr uint8_t kNothing = UINT8_MAX;

  void For(WaitCause cause, int64_t now, WaitCounts* counts) {
    const auto wanted = static_cast<uint8_t>(cause);
    if (cause_ == wanted) return;
    ForNothing(now, counts);
    cause_ = wanted;
    since_ = now;
  }
  void ForNothing(int64_t now, WaitCounts* counts) {
    const uint8_t cause = std::exchange(cause_, kNothing);
    if (cause != kNothing) counts->of(static_cast<WaitCause>(cause)).Add(now - since_);
  }

 private:
  uint8_t cause_ = kNothing;
  int64_t since_ = 0;
};

// The waits of calls on many threads.  Thread-safe.
class SharedWaitCounts {
 public:
  void Add(WaitCause cause, int64_t nanoseconds) noexcept;
  void AddTo(StoreStats* stats) const;

 private:
  struct Count {
    std::atomic<uint64_t> count{0};
    std::atomic<int64_t> nanoseconds{0};
  };
  std::array<Count, kWaitCauses> counts_{};
};

// The number of calls and failures of each verb.  Thread-safe.
class VerbCounts {
 public:
  void Called(Verb verb) noexcept { Grow(&counts_[static_cast<size_t>(verb)].calls); }
  // Like Called, but cheaper: the caller's lock has to protect all calls of the verb.
  void CalledWithLock(Verb verb) noexcept {
    std::atomic<uint64_t>& calls = counts_[static_cast<size_t>(verb)].calls;
    calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void Failed(Verb verb) noexcept { Grow(&counts_[static_cast<size_t>(verb)].failed); }
  void AddTo(StoreStats* stats) const;

 private:
  static void Grow(std::atomic<uint64_t>* count) noexcept {
    count->fetch_add(1, std::memory_order_relaxed);
  }
  struct Count {
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> failed{0};
  };
  std::array<Count, kVerbs> counts_{};
};

UserBytes& operator+=(UserBytes& sum, const UserBytes& more) noexcept;
TrafficStats& operator+=(TrafficStats& sum, const TrafficStats& more) noexcept;

// Adds keys to a store's statistics.  All keys and `deleted` are in the sums; the largest keys are
// listed by name.
void AddKeys(std::vector<KeyStats> keys, const KeyStats& deleted, StoreStats* stats);

}  // namespace tkv
