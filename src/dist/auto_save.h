// The schedule by which a store saves snapshots automatically.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "job/node_thread.h"
#include "wire/effects.h"

namespace tkv {

class Saver;
class Worker;

class AutoSave {
 public:
  // Makes a schedule.  `every` is "100" (rounds) or "30s"; with both texts empty nothing is ever
  // due.
  //   throws  kInvalidArgument  another text, or one without the other
  AutoSave(std::string folder, const std::string& every, Time now);

  const std::string& folder() const { return folder_; }
  // Returns true if a save is due when the key with the most rounds has so many.
  bool IsDue(uint64_t rounds, Time now) const {
    return (rounds_ > 0 && rounds >= last_rounds_ + rounds_) || (span_ > 0 && now >= last_ + span_);
  }
  // Continues after `rounds` rounds of an earlier incarnation.  Assumes that the newest save that
  // was due then exists.
  void GoesOn(uint64_t rounds) {
    if (rounds_ > 0) last_rounds_ = std::max(last_rounds_, rounds - rounds % rounds_);
  }
  // Lowers the round of the last save after the key with the most rounds was removed.  `rounds` is
  // the most that is left.
  void GoesBack(uint64_t rounds) {
    if (rounds_ > 0) last_rounds_ = std::min(last_rounds_, rounds - rounds % rounds_);
  }
  // Notes a save of values that have so many rounds.
  void NoteSaved(uint64_t rounds, Time now) {
    last_rounds_ = rounds;
    last_ = now;
  }

 private:
  std::string folder_;
  // Rounds between two saves; 0: the schedule counts time.
  uint64_t rounds_ = 0;
  Time span_ = 0;
  uint64_t last_rounds_ = 0;
  Time last_;
};

// The stores of one worker that save automatically into the same folder.  Each snapshot has all of
// them, as they are between two steps.
struct SavingStores {
  SavingStores(std::string folder, std::string how_often, Time now)
      : every(std::move(how_often)), when(std::move(folder), every, now) {}

  const std::string every;
  // The most rounds in which this worker has pushed a key of these stores.
  std::atomic<uint64_t> most_rounds = 0;
  // A key or store was removed that may have had the most rounds.
  std::atomic<bool> is_stale = false;
  // A store was closed, and this worker has changed no value of the others since.
  std::atomic<bool> is_ending = false;

  void Raise(uint64_t rounds) {
    uint64_t most = most_rounds;
    while (most < rounds && !most_rounds.compare_exchange_weak(most, rounds)) {
    }
  }

  // Notes a save by the script into this folder.
  void NoteSaved(uint64_t rounds) {
    std::lock_guard lock(mutex);
    when.NoteSaved(rounds, NodeThread::Now());
  }

  // Returns true if no open store saves into this folder.
  bool IsUnused() {
    std::lock_guard lock(mutex);
    return stores.empty();
  }

  // Guards the members below.  Taken before the mutex of a store.
  std::mutex mutex;
  AutoSave when;
  std::map<uint32_t, Saver*> stores;  // the open ones, by number
  // The largest number of a training step with which this worker has pushed a key.
  uint64_t last_step = 0;
  // The step under way has pushes with a number, or a key's first pushes of a round without one.
  bool has_numbered = false;
  bool has_plain = false;
  // The check for keys that a save lacks has been made.
  bool has_looked = false;
  // The log says that saves wait for a push to be repeated.
  bool has_told_uneven = false;
  // This worker has replaced values other than by pushes.  No counter of rounds shows that.
  bool has_replaced = false;
};

// Returns the stores of a worker that save automatically into a folder; null if both texts
// are empty.
//   throws  kInvalidArgument  another store saves there, and not as often; and as AutoSave
std::shared_ptr<SavingStores> StoresSavingIn(Worker* worker, const std::string& folder,
                                             const std::string& every);

}  // namespace tkv
