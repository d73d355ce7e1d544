// The saves and exports of one store, one at a time.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dist/key_record.h"
#include "dist/saving.h"

namespace tkv {

// The saves of a store, which may outlive it: a save of several stores marks all of them.
// Thread-safe.
class StoreSaves {
 public:
  // The party that has reserved the store for a cut.  A cut makes the servers keep the present
  // version of each key.
  enum class Cutting : uint8_t { kNone, kForUser, kByItself };
  // The saves that a wait includes: automatic ones alone, or also those that the user asks for.
  enum class Awaited : uint8_t { kAutomatic, kAll };

  // Returns true if a cut or a save is under way.
  bool IsBusy() const;
  // Waits until the cut under way has ended, at most until the deadline, and then until the save
  // has ended, at most the patience.
  //   throws  kDeadlineExceeded, and what the interrupt throws
  void AwaitEnd(Awaited awaited, std::chrono::steady_clock::time_point deadline,
                const StoreOptions& options);

  // Notes a save whose cut has succeeded.
  //   is_automatic  a line of the log reports its end
  void Add(std::shared_ptr<Saving> saving, bool is_automatic);
  // Forgets a save whose caller has received its result.
  void Forget(const Saving& saving);
  // Takes the newest save; null: none.
  //   is_automatic  set as in Add
  std::shared_ptr<Saving> TakeNewest(bool* is_automatic);

  // Notes that a key of the store was deleted.
  void NoteErased();
  bool has_erased() const;

 private:
  friend class CutTurn;

  bool IsBusyNow() const;

  // Guards the members below.  Never held during a wait.
  mutable std::mutex mutex_;
  Cutting cutting_ = Cutting::kNone;
  std::condition_variable cut_;     // the cut has succeeded or failed
  std::shared_ptr<Saving> newest_;  // null: none, or its caller has received the result
  bool is_automatic_ = false;       // the newest one is automatic
  bool has_erased_ = false;
};

// A guard that reserves the store for one cut: no other cut begins while the guard lives.
class CutTurn {
 public:
  // Reserves the store.
  //   whose   the store, in the words of the error
  //   throws  kFailedPrecondition  another save or export is under way
  CutTurn(std::shared_ptr<StoreSaves> saves, const std::string& verb, StoreSaves::Cutting cutting,
          const char* whose = "this store");
  ~CutTurn();
  CutTurn(const CutTurn&) = delete;
  CutTurn& operator=(const CutTurn&) = delete;

 private:
  const std::shared_ptr<StoreSaves> saves_;
};

// A store as a save sees it.
struct SavedStore {
  uint32_t number = 0;
  std::vector<RecordPtr> records;  // in the order of their init
  std::shared_ptr<StoreSaves> saves;
};

}  // namespace tkv
