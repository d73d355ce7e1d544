// Who uses which key: a call claims its keys, to read or to write, before it touches values.

#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/process.h"
#include "base/small_vector.h"
#include "base/wait.h"
#include "metrics/counters.h"
#include "store/key_table.h"
#include "tkv/kvstore.h"
#include "tkv/updater_states.h"
#include "update/cache.h"

namespace tkv {

// What a push does to a key: one of three.  Immutable but for the cache of compiled code.
struct Updater {
  UpdateFunction function;
  UpdateEnd end;
  UpdaterStates states;            // of the function; empty: nobody knows them
  SumType sums = SumType::kOfKey;  // of the function
  std::shared_ptr<const Optimizer> optimizer;
  // The first one of a row of equal optimizers, whose states `optimizer` goes on with; null: itself.
  std::shared_ptr<const Optimizer> first_optimizer;

  // The optimizer that keys name as that of their states.
  const std::shared_ptr<const Optimizer>& StateOf() const {
    return first_optimizer != nullptr ? first_optimizer : optimizer;
  }
  const CompiledUpdate& CompiledFor(DType dtype) {
    std::lock_guard lock(mutex);
    return compiled.For(optimizer->program(), dtype);
  }

  std::mutex mutex;
  CompiledUpdates compiled;
};

// Who updates a key; null where values are assigned.
inline const std::shared_ptr<const Optimizer>& OptimizerOf(const Entry& entry,
                                                           const Updater& updater) {
  return entry.by_rows() && entry.rows->own ? entry.rows->own->optimizer : updater.optimizer;
}

// Returns the optimizer whose states a key goes on with; null if values are assigned.
inline const std::shared_ptr<const Optimizer>& StateOf(const Entry& entry, const Updater& updater) {
  return entry.by_rows() && entry.rows->own ? entry.rows->own->StateOf() : updater.StateOf();
}

// What threads share; kept apart because a child of fork() must never touch it, not even to destroy
// it.
struct Shared {
  std::mutex mutex;
  std::condition_variable released;
  int waiting = 0;
  uint64_t calls = 0;
  int closing = 0;  // calls of Close that wait for the operations under way
  bool closed = false;
  KeyTable keys;
  KeyStats deleted{Key(KeyView(0))};  // the sums of keys that are no more
  WaitCounts waits;
  std::shared_ptr<Updater> updater = std::make_shared<Updater>();

  // Whether this thread is inside an updater of the store.
  bool IsUpdating() const;
  // Operations under way end before the store closes, with what their updaters do; others are
  // refused from the moment on at which Close begins.
  bool Refuses() const { return closed || (closing > 0 && !IsUpdating()); }
  //   throws  kFailedPrecondition  the store is closed
  void CheckOpen(std::string_view verb) const;
};

// The keys that a call uses, in the order of first appearance, and which item has which.
struct Claim {
  enum class Mode : uint8_t { kRead, kWrite };

  Shared* shared = nullptr;
  Mode mode = Mode::kRead;
  std::shared_ptr<Updater> updater;
  SmallVector<Entry*> entries;
  SmallVector<size_t> push_groups;  // of each push item
  SmallVector<size_t> pull_groups;  // of each pull item
  size_t pushed_keys = 0;    // of the entries, the first ones, when their push has ended well
  size_t pushed_bytes = 0;   // of all values of the call
  size_t pulled_bytes = 0;   // of all outputs
  size_t largest_bytes = 0;  // of one key
  bool has_rows = false;     // a key of the call is kept by rows
  bool has_gpus = false;     // a value of the call is at home on a GPU
  bool is_held = false;

  Claim() = default;
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() {
    if (!is_held) return;
    std::lock_guard lock(shared->mutex);
    for (size_t i = 0; i < pushed_keys; ++i) ++entries[i]->rounds;
    for (Entry* entry : entries) {
      if (mode == Mode::kWrite) {
        entry->is_written = false;
      } else {
        --entry->readers;
      }
    }
    if (shared->waiting > 0) shared->released.notify_all();
  }
};

// Claims the keys of a call, to write where it pushes.  `lock` is that of `shared`.
//   blocks  while another thread uses one of them, at most the patience; the call owns the entries
//           that it waits for, so that others may delete them and close the store meanwhile
//   throws  kNotFound, kInvalidArgument, kDeadlineExceeded, kFailedPrecondition
void ClaimKeys(std::string_view verb, std::span<const PushItem> items,
               std::span<const PullItem> outs, Shared* shared, const StoreOptions& options,
               std::unique_lock<std::mutex> lock, Claim* claim);

// The same for calls that bring rows, and whole values of other keys, which follow them.
void ClaimRows(std::string_view verb, std::span<const RowsPushItem> items,
               std::span<const PushItem> whole, Shared* shared, const StoreOptions& options,
               std::unique_lock<std::mutex> lock, Claim* claim);
// The same for calls that ask for rows.
void ClaimRows(std::string_view verb, std::span<const RowsPullItem> outs, Shared* shared,
               const StoreOptions& options, std::unique_lock<std::mutex> lock, Claim* claim);

// Counts the arrays of a call that has claimed its keys and ended well.
void CountMoved(std::span<const PushItem> items, std::span<const PullItem> outs,
                const Claim& claim);
void CountMoved(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                const Claim& claim);
void CountMoved(std::span<const RowsPullItem> outs, const Claim& claim);

// Claims one key.
//   blocks, throws  as ClaimKeys
void ClaimKey(std::string_view verb, const KeyView& key, Claim::Mode mode, Shared* shared,
              const StoreOptions& options, std::unique_lock<std::mutex> lock, Claim* claim);

// Claims every key of the store.
//   blocks, throws  as ClaimKeys
void ClaimAllKeys(std::string_view verb, Claim::Mode mode, Shared* shared,
                  const StoreOptions& options, std::unique_lock<std::mutex> lock, Claim* claim);

// Waits, with the lock of `shared`, until `free()`.
//   throws  kDeadlineExceeded, and what the user's interrupt throws
template <typename Free>
void WaitForKeys(Shared* shared, const StoreOptions& options, std::string_view verb,
                 std::unique_lock<std::mutex>* lock, Free free) {
  if (free()) return;
  using Clock = std::chrono::steady_clock;
  struct Waiting {  // with the lock
    explicit Waiting(Shared* s) : shared(s) { ++shared->waiting; }
    ~Waiting() {
      --shared->waiting;
      const std::chrono::nanoseconds waited = Clock::now() - begin;
      shared->waits.of(WaitCause::kKey).Add(waited.count());
    }
    Shared* shared;
    const Clock::time_point begin = Clock::now();
  };
  const Waiting waiting(shared);
  // The interrupt runs without the lock: a signal's handler may use the store.
  if (!WaitUntil(lock, &shared->released, DeadlineAfter(options.patience), options.interrupt,
                 free)) {
    throw Fail(Code::kDeadlineExceeded, "{}: another thread has used a key of this call for {} ms",
               verb, options.patience.count());
  }
}

}  // namespace tkv
