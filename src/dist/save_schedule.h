// The schedule by which the stores of one worker save snapshots automatically.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/step_tracker.h"
#include "dist/store_keys.h"
#include "dist/store_saves.h"
#include "job/node_thread.h"

namespace tkv {

class Worker;

// The number of rounds, or the time, from one save to the next.
class SaveClock {
 public:
  // Makes a clock from "100" (rounds) or "30s".
  //   throws  kInvalidArgument  another text
  SaveClock(const std::string& every, Time now);

  // Returns true if a save is due at so many rounds.
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
  uint64_t rounds_ = 0;  // between two saves; 0: the clock counts time
  Time span_ = 0;        // between two saves; 0: the clock counts rounds
  uint64_t last_rounds_ = 0;
  Time last_;
};

// The schedule of all stores of one worker that save into the same folder.  Each snapshot has all
// of them, as they are between two steps of the training script.  Thread-safe.
class SaveSchedule {
 public:
  // A store of the schedule.  Its parts live until Remove.
  struct Member {
    const StoreKeys* keys;
    const StoreCalls* calls;
    std::shared_ptr<StoreSaves> saves;
  };
  // The stores of a save that is due, and the rounds that the clock counts.
  struct Due {
    std::vector<SavedStore> stores;
    uint64_t rounds = 0;
  };

  // Makes a schedule.
  //   folder  of all snapshots; a relative path is of the present directory
  //   every   the text of a SaveClock
  //   throws  kInvalidArgument  a text is empty or wrong
  SaveSchedule(const std::string& folder, std::string every, Time now);

  const std::string& folder() const { return folder_; }
  // Returns the folder without symbolic links, so that two spellings of its path are equal.
  const std::string& canonical_folder() const { return canonical_; }
  const std::string& every() const { return every_; }
  // Returns true if `path` is the folder of the schedule.
  bool IsFolder(const std::string& path) const;

  // ---- the stores
  void Add(uint32_t number, Member store);
  void Remove(uint32_t number);
  // Returns true if the schedule has no store.
  bool IsUnused() const;
  // Returns the stores that are open, with their keys.
  std::vector<SavedStore> OpenStores() const;

  // ---- pushes
  // Notes that a key has had so many pushes by this worker.
  void Raise(uint64_t rounds);
  // Continues after the rounds and the last step of earlier incarnations of this worker.
  void GoOnAfter(uint64_t rounds, uint32_t step);
  // Returns true if a push begins a step of the training script, as StepTracker finds, and notes
  // the step.
  //   of    the keys of its store
  //   step  0: the push has no number
  bool BeginsStep(std::span<const KeyView> keys, const StoreKeys& of, uint32_t step);

  // ---- saves
  // Returns the steps that this worker has made, which the clock counts as rounds.  Usually they
  // are the most rounds of a key.  If optimizers take turns, there are more steps.
  uint64_t Rounds() const;
  // Returns the stores to save if a save is due and none of them is saving.
  std::optional<Due> DueNow() const;
  // Notes that the save begins; returns false if another thread has begun it.
  bool Begin(const Due& due);
  // Notes a save of values that have so many rounds.
  void NoteSaved(uint64_t rounds);
  // Returns true at the first call: later saves need not look for keys that they lack.
  bool TakeLookForLacking();
  // Returns true at the first call: the log has the warning afterwards.
  bool TakeWarningOfUneven();
  // Begins the last save.  Returns false if an earlier close of a store has saved all stores, and
  // this worker has changed no value since.
  bool BeginLast() { return !is_ending_.exchange(true); }

  // ---- changes that no count of rounds shows
  // Notes that a key with so many rounds was deleted.
  void NoteErased(uint64_t rounds);
  // Notes that values were replaced by an assign, imported rows or a snapshot.
  void NoteReplaced();
  bool has_replaced() const;
  // Notes that a snapshot was loaded, from whose steps and rounds this worker goes on.
  void NoteLoaded();

 private:
  void RecountRounds();
  //   is_numbered  the step under way has pushes with a number
  uint64_t RoundsWithStep(uint64_t most, bool is_numbered) const;
  void CountStep(bool is_numbered);

  const std::string every_;
  const std::string folder_;  // absolute: the process may change its directory
  const std::string canonical_;
  // The most rounds in which this worker has pushed a key of these stores.
  std::atomic<uint64_t> most_rounds_ = 0;
  // A key or store was removed that may have had the most rounds.
  std::atomic<bool> is_stale_ = false;
  // A store was closed, and this worker has changed no value of the others since.
  std::atomic<bool> is_ending_ = false;

  // Guards the members below.  Taken before the mutexes of a store.
  mutable std::mutex mutex_;
  SaveClock clock_;
  std::map<uint32_t, Member> stores_;  // by number
  StepTracker steps_;
  // When the step under way began: the rounds of the clock, and the most rounds of a key.
  bool has_begun_ = false;
  uint64_t rounds_at_begin_ = 0;
  uint64_t most_at_begin_ = 0;
  bool has_looked_ = false;  // for keys that a save lacks
  bool has_warned_ = false;  // that saves wait for a push to be repeated
  bool has_replaced_ = false;
};

// Checks the texts of a schedule.
//   throws  kInvalidArgument  one is wrong, or only one is empty
void CheckSchedule(const std::string& folder, const std::string& every);

// Returns the schedule of a worker that saves into a folder; null if both texts are empty.
//   throws  kInvalidArgument  another store saves there, and not as often; and as SaveSchedule
std::shared_ptr<SaveSchedule> ScheduleOf(Worker* worker, const std::string& folder,
                                         const std::string& every);

}  // namespace tkv
