// When a store saves a snapshot by itself.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "wire/effects.h"

namespace tkv {

class DistStore;

class AutoSave {
 public:
  // Whether this says how often.
  static bool IsInterval(std::string_view every);

  // `every`: "100" rounds or "30s"; both texts empty: never.
  //   throws  kInvalidArgument  another text, or one without the other
  AutoSave(std::string folder, const std::string& every, Time now);

  const std::string& folder() const { return folder_; }
  // Whether it is time, after so many rounds of this store.
  bool IsDue(uint64_t rounds, Time now) const {
    return (rounds_ > 0 && rounds >= last_rounds_ + rounds_) || (span_ > 0 && now >= last_ + span_);
  }
  // This worker goes on behind so many rounds; the last save is taken to be the newest that was due.
  void GoesOn(uint64_t rounds) {
    if (rounds_ > 0) last_rounds_ = std::max(last_rounds_, rounds - rounds % rounds_);
  }
  // The key with the most rounds has gone, and these are the most now.
  void GoesBack(uint64_t rounds) {
    if (rounds_ > 0) last_rounds_ = std::min(last_rounds_, rounds - rounds % rounds_);
  }
  void Begun(uint64_t rounds, Time now) {
    last_rounds_ = rounds;
    last_ = now;
  }

 private:
  std::string folder_;
  uint64_t rounds_ = 0;  // between two; 0: time counts
  Time span_ = 0;
  uint64_t last_rounds_ = 0;
  Time last_;
};

// The stores of one worker that save into one folder by themselves.  Each snapshot there has all of
// them as the step before has left them.
struct SavingStores {
  SavingStores(std::string folder, std::string how_often, Time now)
      : every(std::move(how_often)), when(std::move(folder), every, now) {}

  const std::string every;
  // This worker has pushed no key of these stores in more rounds.
  std::atomic<uint64_t> most_rounds = 0;
  std::atomic<bool> is_stale = false;  // a key or store has gone that may have had the most rounds

  void Raise(uint64_t rounds) {
    uint64_t most = most_rounds;
    while (most < rounds && !most_rounds.compare_exchange_weak(most, rounds)) {
    }
  }

  // Returns true if no store is open that saves here.
  bool IsUnused() {
    std::lock_guard lock(mutex);
    return stores.empty();
  }

  std::mutex mutex;  // of what follows; taken before that of a store
  AutoSave when;
  std::map<uint32_t, DistStore*> stores;  // those that are open, by their numbers
  bool is_writer = false;                 // this worker saves at its end what no snapshot has
  bool has_looked = false;                // for keys that a save lacks
  bool has_assigned = false;  // values have been replaced since the last save, which no count tells
};

}  // namespace tkv
