// The changes of the updater that a client sends to all servers, as CONTROLs: their queue, and in a
// restarted worker its last change of each store.

#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/server_link.h"
#include "wire/message.h"

namespace tkv {

// A change of the updater, from the call until its end.
struct Announcement {
  enum class Phase : uint8_t {
    kWaiting,      // for inits, opens, deletes and pushes that the user gave before it
    kSending,      // the CONTROLs are under way
    kCommitting,   // every server has its CONTROL; the head is asked for the COMMIT
    kWithdrawing,  // the WITHDRAWs are under way; then the operation fails with `error`
  };
  OpId op = kNoOp;
  uint32_t store = 0;
  bool is_repeat = false;  // the client itself repeats the store's last change
  bool is_over = false;    // its operation has ended
  Phase phase = Phase::kWaiting;
  uint64_t generation = 0;
  std::vector<ControlRounds::Item> listed;  // the keys that its CONTROLs name
  std::optional<Error> error;

  bool has_started() const { return phase != Phase::kWaiting; }
  bool Lists(const KeyId& key) const {
    return std::ranges::any_of(listed, [&](const auto& item) { return item.key == key; });
  }
};

// Changes are made one at a time, in the order of the calls.  A change has started when its
// CONTROLs are queued.  A later life of a worker (its process was started again) repeats its last
// change of a store for each key whose rounds it joins after that change.
class Announcements {
 public:
  // The last change of a store that this worker made and the head committed.  Kept in a later life
  // alone.
  struct Last {
    uint64_t generation = 0;
    std::string verb;
    UpdateSpec spec;
  };

  bool empty() const { return queue_.empty(); }
  Announcement* front() { return queue_.empty() ? nullptr : &queue_.front(); }
  const Announcement* front() const { return queue_.empty() ? nullptr : &queue_.front(); }
  void Pop() { queue_.pop_front(); }
  void Clear() { queue_.clear(); }
  // Appends the user's change.
  void Add(OpId op, uint32_t store) { queue_.push_back({.op = op, .store = store}); }
  // Adds a repetition, behind the changes that have started and before all others.
  void AddRepeat(OpId op, uint32_t store);
  Announcement* Find(OpId op);
  const Announcement* Find(OpId op) const;
  // Marks a change whose operation has ended.  The change holds pushes until Pop.
  void End(OpId op);

  // Returns true if a repetition is queued that will name the key, or has named it.
  bool IsRepeated(uint32_t store, const KeyId& key) const;
  // Returns true if a push has to wait: an earlier change of the user is queued, or an earlier
  // repetition has ended and is still queued.
  bool Holds(OpId op) const;
  // Returns false if the init of a later life has to wait for a change of its store.  The life
  // creates a key wholly before a change, whose CONTROLs then name the key, or wholly after it.
  bool MayInit(OpId init, uint32_t store) const;
  // Returns true if an earlier change of the store has not ended.
  bool IsInUse(uint32_t store, OpId before) const;

  uint64_t NewGeneration() { return ++generation_; }
  // Returns the last change of a store, or null.
  const Last* LastOf(uint32_t store) const;
  void SetLast(uint32_t store, Last last) { last_[store] = std::move(last); }
  void ForgetLast(uint32_t store) { last_.erase(store); }

 private:
  friend class StateWriter;         // for checks: compares the states of state machines
  std::deque<Announcement> queue_;  // the first one starts next, or is under way
  std::map<uint32_t, Last> last_;   // by store, in a later life
  uint64_t generation_ = 0;
};

}  // namespace tkv
