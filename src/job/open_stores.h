// The stores of one worker: their numbers, and which of them are open.

#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace tkv {

// Thread-safe.
class OpenStores {
 public:
  // Opens a store and returns its number.  The number is the same on all ranks that make their
  // stores in the same order.
  //   rank    of the worker, for the error
  //   throws  kFailedPrecondition  the last store has just been closed
  uint32_t Open(int rank);
  // Opens a store that another worker has made, for an observer.
  void Observe(uint32_t store);
  // Closes a store.  Returns true if it was the last one: the worker then has to leave the job.
  bool Close(uint32_t store);
  uint32_t count() const;  // all that were opened
  // Returns true if the last store was closed.  A new store then needs a new worker.
  bool is_over() const;

  // Notes that a store which was not the last one was closed after a failure.  If the calling
  // thread uses another store later, its program has caught the error.
  void NoteFailedClose(uint32_t store);
  bool has_failed_closes() const { return has_failed_closes_; }
  // Returns the stores that this thread has closed after a failure, and forgets them.
  std::vector<uint32_t> TakeFailedCloses();

 private:
  mutable std::mutex mutex_;
  uint32_t count_ = 0;
  std::set<uint32_t> open_;
  std::vector<std::pair<std::thread::id, uint32_t>> failed_closes_;
  std::atomic<bool> has_failed_closes_ = false;  // `failed_closes_` is not empty
  bool is_over_ = false;
};

}  // namespace tkv
