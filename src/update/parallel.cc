#include "update/parallel.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/process.h"

namespace tkv {

#if defined(__SANITIZE_THREAD__)
constexpr bool kSerial = true;  // the sanitizer cannot see the pool's synchronization
#else
constexpr bool kSerial = false;
#endif

int ThreadsFor(int wanted) {
  static const unsigned birth = ForkGeneration();
  static const int usable = UsableCores();
  if (kSerial || ForkGeneration() != birth) return 1;
  return wanted > 0 ? wanted : usable;
}

namespace {

// Returns the arena for a number of threads, which is kept and never destroyed.  Making one for
// each call gets slower with every call (measured: 20 us at first, 2 ms after ten thousand).  At
// exit, worker threads still sleep in it.
oneapi::tbb::task_arena& ArenaOf(int threads) {
  static auto& arenas = *new std::map<int, oneapi::tbb::task_arena>();
  static auto& mutex = *new std::mutex();
  std::lock_guard lock(mutex);
  return arenas.try_emplace(threads, threads).first->second;
}

// The parts of a range that are still to be done, as one share for each slot.  A slot takes the
// parts of its own share in order, and then parts of other shares from their ends.  Every call
// gives the same share to the same slot, so that a core finds its last data in its cache.
class Shares {
 public:
  Shares(size_t slots, size_t parts) : shares_(slots) {
    TKV_CHECK(parts <= UINT32_MAX);
    for (size_t i = 0; i < slots; ++i) {
      shares_[i].left = Packed(parts * i / slots, parts * (i + 1) / slots);
    }
  }

  // Calls f(part) for one part after the other, until no part is left.
  template <typename F>
  void Take(size_t slot, const F& f) {
    uint32_t part = 0;
    while (Next(&shares_[slot], false, &part)) f(part);
    for (size_t i = 1; i < shares_.size(); ++i) {
      Share* const other = &shares_[(slot + i) % shares_.size()];
      while (Next(other, true, &part)) f(part);
    }
  }

 private:
  struct alignas(64) Share {
    std::atomic<uint64_t> left{0};  // first part in the upper half, end in the lower half
  };
  static uint64_t Packed(uint64_t begin, uint64_t end) { return begin << 32 | end; }

  static bool Next(Share* share, bool from_end, uint32_t* part) {
    uint64_t left = share->left.load(std::memory_order_relaxed);
    for (;;) {
      const auto begin = static_cast<uint32_t>(left >> 32);
      const auto end = static_cast<uint32_t>(left);
      if (begin == end) return false;
      *part = from_end ? end - 1 : begin;
      const uint64_t rest =
          from_end ? Packed(begin, end - uint64_t{1}) : Packed(begin + uint64_t{1}, end);
      if (share->left.compare_exchange_weak(left, rest, std::memory_order_relaxed)) return true;
    }
  }

  std::vector<Share> shares_;
};

}  // namespace

void ParallelFor(int threads, size_t count, size_t grain,
                 const std::function<void(size_t, size_t, size_t)>& body) {
  if (kSerial || threads <= 1 || count <= grain) {
    if (count > 0) body(0, 0, count);
    return;
  }
  const auto slots = static_cast<size_t>(threads);
  Shares shares(slots, (count + grain - 1) / grain);
  ArenaOf(threads).execute([&] {
    oneapi::tbb::parallel_for(
        oneapi::tbb::blocked_range<size_t>(0, slots),
        [&](const oneapi::tbb::blocked_range<size_t>&) {
          const auto slot =
              static_cast<size_t>(oneapi::tbb::this_task_arena::current_thread_index());
          shares.Take(slot, [&](size_t part) {
            body(slot, part * grain, std::min(count, (part + 1) * grain));
          });
        },
        oneapi::tbb::simple_partitioner());
  });
}

}  // namespace tkv
