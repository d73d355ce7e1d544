// Makes the snapshots of one store: explicit ones, and automatic ones by a schedule.  An automatic
// snapshot has all stores of this worker that save into the same folder.

#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dist/key_cutter.h"
#include "dist/save_schedule.h"
#include "dist/saving.h"
#include "dist/store_core.h"
#include "dist/store_saves.h"

namespace tkv {

class Saver {
 public:
  // Makes the saver of an open store.
  //   core, updater  of the store; both must outlive the saver
  //   schedule       of the worker's stores that save into one folder; null: this store saves only
  //                  when it is asked to
  Saver(StoreCore* core, const ServerUpdater* updater, std::shared_ptr<SaveSchedule> schedule);

  // Saves all keys of the store, after the end of an automatic save.  The lowest rank that lives
  // saves; other ranks write nothing.  With Parts::kAll, a save into the folder of the
  // schedule has all stores that save there, because a job goes on from the newest snapshot in it.
  //   verb     the first word of errors
  //   returns  the path of the snapshot; empty if another rank saves or has saved the same values
  //   throws   kFailedPrecondition  another save or export of the user is under way
  std::string Save(const std::string& verb, const std::string& path, Parts parts);
  // Begins a save as Save does.  Returns null if another rank saves.  The path may be relative to
  // the present folder, although the folder changes before the save ends.
  Ticket SaveAsync(const std::string& path);
  // Reserves the store for a cut of the user, after the end of a save by the schedule.
  CutTurn TakeTurn(const std::string& verb) {
    AwaitAutoSave();
    return {saves_, verb, StoreSaves::Cutting::kForUser};
  }

  // Starts a save if one is due and this call begins a new step.  Call it before the push leaves:
  // every key is then as the step before has left it.
  //   step  number of the training step that the push belongs to; 0: none
  void SaveIfDue(std::span<const KeyView> keys, uint32_t step);
  // Each of these tells the schedule, if there is one, as SaveSchedule's function of that name.
  void Raise(uint64_t rounds) {
    if (schedule_ != nullptr) schedule_->Raise(rounds);
  }
  void GoOnAfter(uint64_t rounds, uint32_t step) {
    if (schedule_ != nullptr) schedule_->GoOnAfter(rounds, step);
  }
  void NoteReplaced() {
    if (schedule_ != nullptr) schedule_->NoteReplaced();
  }
  void NoteLoaded() {
    if (schedule_ != nullptr) schedule_->NoteLoaded();
  }
  // Notes that a key with so many rounds was deleted.
  void NoteErased(uint64_t rounds) {
    saves_->NoteErased();
    if (schedule_ != nullptr) schedule_->NoteErased(rounds);
  }
  // Saves everything that no snapshot has, before the first store of the folder is closed.
  // Only the lowest rank that has neither left nor died saves.
  // Saves nothing if another store of the folder was closed before and this worker has changed no
  // value since, because that close has saved this store, too.
  // For synchronous stores it starts the save, and EndSaving waits.  For asynchronous stores it
  // waits here, and saves again if another worker has left meanwhile.
  //   returns  an interrupt, a lack of memory, or the timeout of a wait for the written snapshot.
  //            The close goes on.  Other errors are logged.
  std::exception_ptr SaveAtEnd();
  // Waits for a save under way, and stops it after the patience.  Removes the store from the
  // schedule.
  //   throws  kDeadlineExceeded; the error of an explicit save that no caller has received
  void EndSaving(std::chrono::nanoseconds patience);
  // Ends a save as EndSaving does, for a store that is dropped.
  //   returns  the error of the save that nobody has received
  std::optional<Error> EndSavingUnclosed(std::chrono::nanoseconds patience) noexcept;

 private:
  enum class SaveWhen : uint8_t {
    kAlways,
    kIfNew,  // only if the newest snapshot in the folder differs
  };

  std::vector<SavedStore> StoresToSave(const SaveRequest& request) const;
  bool IsFolderOfSchedule(const std::string& path) const;
  template <typename F>
  std::shared_ptr<Saving> Begin(const SaveRequest& request, StoreSaves::Cutting cutting, bool waits,
                                F prepare);
  std::shared_ptr<Saving> BeginForUser(const std::string& verb, const std::string& path,
                                       Parts parts);
  void SpareRepeat(std::span<const SavedStore> stores, Saving* saving) const;
  void WarnOfLacking(std::span<const SavedStore> stores);
  std::shared_ptr<Saving> SaveBeside(const std::vector<SavedStore>& stores,
                                     std::chrono::nanoseconds patience, SaveWhen when,
                                     const Saving* earlier);
  std::shared_ptr<Saving> SaveLast(const std::vector<SavedStore>& stores, const Saving* earlier);
  std::exception_ptr SaveUntilNoneLeaves(const std::vector<SavedStore>& stores);
  bool IsLastSender(const std::string& verb, std::chrono::nanoseconds patience) const;
  std::set<uint64_t> LivingOthers() const;
  bool IsUneven(std::span<const SavedStore> stores);
  void AwaitAutoSave();
  std::optional<Error> StopSaving(std::chrono::nanoseconds patience, std::exception_ptr* late);

  StoreCore& core_;
  const std::shared_ptr<SaveSchedule> schedule_;  // null: no automatic saves
  KeyCutter cutter_;
  const std::shared_ptr<StoreSaves> saves_ = std::make_shared<StoreSaves>();
};

}  // namespace tkv
