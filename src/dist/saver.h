// Makes the snapshots of one store: explicit ones, and automatic ones by a schedule.  An automatic
// snapshot has all stores of this worker that save into the same folder.

#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dist/auto_save.h"
#include "dist/saving.h"
#include "dist/store_calls.h"
#include "dist/store_keys.h"

namespace tkv {

class Saver {
  // The saves and exports of a store.  They may outlive the store, because a save of several stores
  // marks all of them.
  struct Saves;
  // The party that has reserved the store for a cut.  A cut makes the servers keep the present
  // version of each key.
  enum class Cutting : uint8_t { kNone, kForUser, kByItself };

 public:
  // A guard that reserves the store for one cut: no other cut begins while the guard lives.
  class CutTurn {
   public:
    // Reserves the store.
    //   whose   the store, in the words of the error
    //   throws  kFailedPrecondition  another save or export is under way
    CutTurn(std::shared_ptr<Saves> saves, const std::string& verb, Cutting cutting,
            const char* whose = "this store");
    ~CutTurn();
    CutTurn(const CutTurn&) = delete;
    CutTurn& operator=(const CutTurn&) = delete;

   private:
    const std::shared_ptr<Saves> saves_;
  };

  // Makes the saver of an open store.
  //   options        outlive the saver, as do `calls` and `keys`
  //   saving_stores  the stores that save by a schedule; null: this store does not
  //   has_optimizer  returns true if the store has one; called with the mutex of `keys`
  Saver(std::shared_ptr<Worker> worker, uint32_t number, const StoreOptions& options,
        StoreCalls* calls, StoreKeys* keys, std::shared_ptr<SavingStores> saving_stores,
        std::function<bool()> has_optimizer);

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
    return {saves_, verb, Cutting::kForUser};
  }

  // Starts a save if one is due and this call begins a new step.  Call it before the push leaves:
  // every key is then as the step before has left it.
  //   step  number of the training step that the push belongs to; 0: none
  void SaveIfDue(std::span<const KeyView> keys, uint32_t step);
  // Notes that a key of this store has had `rounds` pushes by this worker.
  void Raise(uint64_t rounds) {
    if (saving_stores_ != nullptr) saving_stores_->Raise(rounds);
  }
  // Continues the schedule after the rounds and the last step of earlier incarnations of this
  // worker.
  void GoOnAfter(uint64_t rounds, uint32_t step);
  // Notes that a key with so many rounds was deleted.
  void NoteErased(uint64_t rounds) {
    {
      std::lock_guard lock(saves_->mutex);
      saves_->has_erased = true;
    }
    if (saving_stores_ == nullptr) return;
    if (rounds >= saving_stores_->most_rounds) saving_stores_->is_stale = true;
  }
  // Notes that values were replaced by an assign, imported rows or a snapshot.
  void NoteReplaced();
  // Notes that a snapshot was loaded, from whose steps and rounds this worker goes on.
  void NoteLoaded();
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
  struct Saves {
    // Guards the members below.  Never held during a wait.
    std::mutex mutex;
    Cutting cutting = Cutting::kNone;
    std::condition_variable cut;     // the cut has succeeded or failed
    std::shared_ptr<Saving> saving;  // the newest one
    bool is_auto_saving = false;     // the newest one is automatic
    bool has_erased = false;         // a key of the store was deleted

    // Returns true if a cut or save is under way.  Call with the mutex.
    bool is_busy() const {
      return cutting != Cutting::kNone || (saving != nullptr && !saving->done());
    }
  };
  // A store as a save sees it.
  struct SavedStore {
    uint32_t number = 0;
    std::vector<RecordPtr> records;
    std::shared_ptr<Saves> saves;
  };
  enum class SaveWhen : uint8_t { kAlways, kIfNew };

  SavedStore ToSave(const std::string& verb) const;
  std::vector<SavedStore> AllToSave() const;
  std::vector<SavedStore> StoresToSave(const std::string& verb, const std::string& path,
                                       Parts parts) const;
  bool IsFolderOfSchedule(const std::string& path) const;
  using Outcomes = std::map<RecordPtr, Outcome>;
  void CutKeys(const std::string& verb, std::span<const RecordPtr> records,
               std::chrono::nanoseconds patience, Outcomes* outcomes);
  std::shared_ptr<Saving> Cut(const std::string& verb, const std::string& path, Parts parts,
                              std::span<const SavedStore> stores,
                              std::chrono::nanoseconds patience);
  std::shared_ptr<Saving> Begin(const std::string& verb, const std::string& path, Parts parts,
                                std::span<const SavedStore> stores, Cutting cutting, bool waits,
                                std::chrono::nanoseconds patience);
  std::shared_ptr<Saving> CutAfterOthers(const std::string& verb, const std::string& path,
                                         Parts parts, std::span<const SavedStore> stores,
                                         std::chrono::nanoseconds patience);
  static bool HasErased(std::span<const SavedStore> stores);
  void SpareRepeat(std::span<const SavedStore> stores, Saving* saving) const;
  bool BeginsStep(std::span<const KeyView> keys, uint32_t step);
  void RecountRounds();
  void WarnOfLacking(std::span<const SavedStore> stores);
  std::shared_ptr<Saving> SaveBeside(std::span<const SavedStore> stores,
                                     std::chrono::nanoseconds patience, SaveWhen when,
                                     const Saving* earlier);
  static bool HasAsyncKeys(std::span<const SavedStore> stores);
  bool IsSender() const;
  bool IsLastSender(const std::string& verb, std::chrono::nanoseconds patience) const;
  std::set<uint64_t> LivingOthers() const;
  bool IsUneven(std::span<const SavedStore> stores);
  void AwaitAutoSave();
  void AwaitSaves(std::span<const SavedStore> stores) const;
  std::shared_ptr<Saving> TakeLastSaving(bool* is_told);

  const std::shared_ptr<Worker> worker_;
  const uint32_t number_;
  const StoreOptions& options_;
  StoreCalls& calls_;
  StoreKeys& keys_;
  const std::shared_ptr<SavingStores> saving_stores_;  // null: no automatic saves
  const std::function<bool()> has_optimizer_;
  const std::shared_ptr<Saves> saves_ = std::make_shared<Saves>();
};

}  // namespace tkv
