// Claims: a call claims its keys, to read or to write, before it touches their values.

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

// The updater of a store, or of one key: a function, an optimizer, or neither, which assigns.
// Immutable except for the cache of compiled code, which `mutex` guards.
struct Updater {
  UpdateFunction function;
  UpdateEnd end;
  UpdaterStates states;            // of the function; empty: the store does not know them
  SumType sums = SumType::kOfKey;  // type of the sums that the function gets
  std::shared_ptr<const Optimizer> optimizer;
  // The first of a chain of equal optimizers; `optimizer` continues with its states.  Null:
  // `optimizer` itself.
  std::shared_ptr<const Optimizer> first_optimizer;

  // Returns the optimizer that keys record as the owner of their states.
  const std::shared_ptr<const Optimizer>& StateOwner() const {
    return first_optimizer != nullptr ? first_optimizer : optimizer;
  }
  const CompiledUpdate& CompiledFor(DType dtype) {
    std::lock_guard lock(mutex);
    return compiled.For(optimizer->program(), dtype);
  }

  std::mutex mutex;
  CompiledUpdates compiled;
};

// Returns the optimizer that updates a key; null if values are assigned.
inline const std::shared_ptr<const Optimizer>& OptimizerOf(const Entry& entry,
                                                           const Updater& updater) {
  return entry.by_rows() && entry.rows->own ? entry.rows->own->optimizer : updater.optimizer;
}

// Returns the optimizer whose states a key continues with; null if values are assigned.
inline const std::shared_ptr<const Optimizer>& StateOwnerOf(const Entry& entry,
                                                            const Updater& updater) {
  return entry.by_rows() && entry.rows->own ? entry.rows->own->StateOwner() : updater.StateOwner();
}

// The part of a store that threads share.  Separate from the store, because a child of fork() must
// never touch it, not even to destroy it.
struct Shared {
  std::mutex mutex;
  std::condition_variable released;  // a claim has released its keys
  int waiting = 0;                   // threads that wait for `released`
  uint64_t calls = 0;                // calls that have looked up keys: the number of the newest one
  int closing = 0;                   // calls of Close that wait for operations under way
  bool closed = false;
  KeyTable keys;
  KeyStats deleted{Key(KeyView(0))};  // sums over deleted keys
  WaitCounts waits;
  std::shared_ptr<Updater> updater = std::make_shared<Updater>();

  // Returns true if this thread is running an updater of the store.
  bool IsUpdating() const;
  // Returns true if new operations are refused: from the moment when Close begins.  Operations
  // under way finish first, so their updaters may still use the store.
  bool Refuses() const { return closed || (closing > 0 && !IsUpdating()); }
  //   throws  kFailedPrecondition  the store is closed
  void CheckOpen(std::string_view verb) const;
};

// A call, and the keys that it uses, in the order of first appearance.  A group is the index of a
// key in `entries`.  The destructor releases the keys.
struct Claim {
  enum class Mode : uint8_t { kRead, kWrite };

  const std::string_view verb;  // of the call, for errors
  const StoreOptions& options;
  Shared* const shared;
  Mode mode = Mode::kRead;
  std::shared_ptr<Updater> updater;
  SmallVector<Entry*> entries;
  SmallVector<size_t> push_groups;  // group of each push item
  SmallVector<size_t> pull_groups;  // group of each pull item
  size_t pushed_keys = 0;           // number of the first entries whose push has ended well
  size_t pushed_bytes = 0;          // bytes of all values of the call
  size_t pulled_bytes = 0;          // bytes of all outputs
  size_t largest_bytes = 0;         // bytes of the largest key
  bool has_rows = false;            // a key of the call is kept by rows
  bool has_gpus = false;            // a value of the call has its home on a GPU
  bool is_held = false;             // the claim holds its keys, which the destructor releases

  //   all  must outlive the claim
  Claim(std::string_view of_verb, const StoreOptions& of_options, Shared* of_shared)
      : verb(of_verb), options(of_options), shared(of_shared) {}
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

// Claims the keys of a call: to write if the call pushes, else to read.  All items are checked
// first.  `lock` holds the mutex of `shared`, and is released on return.
//   blocks  while another thread uses one of the keys, at most the timeout (`patience`).  The call
//           shares the ownership of the entries for which it waits, so that other threads may
//           delete them and close the store meanwhile.
//   throws  kNotFound, kInvalidArgument, kDeadlineExceeded, kFailedPrecondition
void ClaimKeys(std::span<const PushItem> items, std::span<const PullItem> outs,
               std::unique_lock<std::mutex> lock, Claim* claim);

// Claims the keys of a call that pushes rows.  `whole` are the call's keys with whole values; they
// follow the rows.
void ClaimRows(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
               std::unique_lock<std::mutex> lock, Claim* claim);
// Claims the keys of a call that pulls rows.
void ClaimRows(std::span<const RowsPullItem> outs, std::unique_lock<std::mutex> lock, Claim* claim);

// Fills a claim with keys that are not in the store yet.  The claim does not hold them, because no
// other call can find them.
//   items  the new keys, and their entries, which outlive the claim
//   outs   pulls of these keys
void PutNewKeys(std::span<const InitItem> items, std::span<const std::shared_ptr<Entry>> entries,
                std::span<const PullItem> outs, Claim* claim);

// Counts the arrays of a call that has claimed its keys and ended well.
void CountTransfers(std::span<const PushItem> items, std::span<const PullItem> outs,
                    const Claim& claim);
void CountTransfers(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                    const Claim& claim);
void CountTransfers(std::span<const RowsPullItem> outs, const Claim& claim);

// Claims one key.
//   blocks, throws  as ClaimKeys
void ClaimKey(const KeyView& key, Claim::Mode mode, std::unique_lock<std::mutex> lock,
              Claim* claim);

// Claims every key of the store.
//   blocks, throws  as ClaimKeys
void ClaimAllKeys(Claim::Mode mode, std::unique_lock<std::mutex> lock, Claim* claim);

// Waits until `in_use()` returns null.  The function returns a key that the call waits for, and is
// called with the lock of `shared`.  Counts the time in `waits`.
//   throws  kDeadlineExceeded, and the errors of the user's interrupt
template <typename InUse>
void WaitForKeys(Shared* shared, const StoreOptions& options, std::string_view verb,
                 std::unique_lock<std::mutex>* lock, InUse in_use) {
  const auto free = [&] { return in_use() == nullptr; };
  if (free()) return;
  using Clock = std::chrono::steady_clock;
  struct Waiting {  // created and destroyed with the lock
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
  // The interrupt runs without the lock, because a signal's handler may use the store.
  if (!WaitUntil(lock, &shared->released, DeadlineAfter(options.patience), options.interrupt,
                 free)) {
    const Key* const key = in_use();
    throw Fail(Code::kDeadlineExceeded, "{} {}: another thread has used the key for {} ms", verb,
               key->view().ToString(), options.patience.count());
  }
}

}  // namespace tkv
