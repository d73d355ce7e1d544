// The keys that a client uses, as it knows them.

#pragma once

#include <boost/unordered/unordered_map.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/small_vector.h"
#include "client/operation.h"
#include "client/server_link.h"

namespace tkv {

// A search for the current round of a key: STATUS of every chunk, then ABSTAIN.
struct RoundSearch {
  enum class Phase : uint8_t { kNone, kStatus, kAbstain };
  Phase phase = Phase::kNone;
  uint32_t left = 0;  // outstanding answers, also of a search that has failed
  // The oldest and the newest round that this worker's pushes have reached, of all chunks.
  uint64_t oldest = UINT64_MAX;
  uint64_t newest = 0;
  PushStep step = {};  // of the push of the round from which this worker goes on
  bool is_over() const { return phase == Phase::kNone && left == 0; }
};

// Returns the error of a call that needs all chunks at one round, for a key that is uneven.
//   round  of the key's last push, as users count
Error UnevenAt(uint64_t round);

struct ClientKey {
  KeyMeta meta;
  bool is_ready = false;
  bool is_stale = false;    // deleted or created anew since this client found it
  OpId opening = kNoOp;     // the init, open, delete or restore that is under way
  bool is_barrier = false;  // the internal key whose rounds are the store's barriers
  bool must_join = false;   // its current round is unknown
  RoundSearch search;
  uint64_t round = 0;  // of the last push
  // The newest round that a push has reached in some chunk.  Pushes of the rounds from `round` +
  // 1 to this one are repetitions.
  uint64_t repeats_to = 0;
  uint64_t joined_at = 0;     // the round that the last search has found; 0: none
  uint64_t reached = 0;       // of a barrier: the round that earlier lives had reached
  uint64_t lost_from = 0;     // the first round whose push has failed since that search; 0: none
  bool has_pushed = false;    // a push of this life has got a round
  PushStep former_step = {};  // of the last push of an earlier life
  uint64_t base = 0;          // users count rounds from here, modulo 2^64
  uint64_t listed_in = 0;     // generation of this life's last committed CONTROL with the key
  uint32_t pulls = 0;         // unanswered pulls, for which the next push waits
  uint32_t pushes = 0;        // unanswered pushes
  bool was_tried = false;     // an init of it has failed
  SmallVector<KnownChunk, 1> chunks;
  SmallVector<OpId, 4> queue;

  bool is_sync() const { return meta.mode == KeyMeta::Mode::kSync; }
  uint32_t store() const { return StoreOf(meta.name); }
  bool is_uneven() const { return round < repeats_to; }
  Error Uneven() const { return UnevenAt(base + round); }
  // Returns true if no answer under way could be mistaken for an answer to a search.
  bool CanJoin() const { return pulls == 0 && pushes == 0 && search.is_over(); }
  // Notes that the key was deleted, or is not the one that this client has found, if the error of a
  // server says so.
  void MarkStaleIfGone(const Error& error);
  // Forgets all but the queued operations.
  void Reset();
  // Returns why the first queued operation cannot start.
  WaitCause WhyHeld() const;
};

class ClientKeys {
 public:
  ClientKey* Find(const KeyId& id) { return const_cast<ClientKey*>(std::as_const(*this).Find(id)); }
  const ClientKey* Find(const KeyId& id) const {
    const auto found = keys_.find(id);
    return found == keys_.end() ? nullptr : &found->second;
  }
  const ClientKey* Find(const std::string& name) const { return Find(IdOf(name)); }
  ClientKey& At(const KeyId& id) { return keys_.at(id); }
  const ClientKey& At(const KeyId& id) const { return keys_.at(id); }
  ClientKey& FindOrAdd(const KeyId& id) { return keys_[id]; }
  // Makes a new key the barrier of its store.
  void MakeBarrier(const KeyId& id, const std::string& name, ClientKey* key);
  void Erase(const KeyId& id) { keys_.erase(id); }
  void EraseStore(uint32_t store);
  // Returns the keys in ascending order: the order of messages may not depend on a hash table.
  std::vector<KeyId> Sorted() const;
  template <typename F>
  bool Any(const F& matches) const {
    for (const auto& [id, key] : keys_) {
      if (matches(key)) return true;
    }
    return false;
  }

  // ---- keys whose first queued operation may be able to start
  void Wake(const KeyId& id) {
    if (ready_.empty() || ready_.back() != id) ready_.push_back(id);
  }
  void WakeAll();
  void WakeBarriers() { ready_.insert(ready_.end(), barriers_.begin(), barriers_.end()); }
  bool has_ready() const { return !ready_.empty(); }
  void ForgetReady() { ready_.clear(); }
  // Calls f(id) for each, also for those that f wakes.
  template <typename F>
  void TakeReady(const F& f) {
    for (size_t i = 0; i < ready_.size(); ++i) f(KeyId(ready_[i]));
    ready_.clear();
  }

 private:
  friend class StateWriter;  // for checks: compares the states of machines

  boost::unordered_map<KeyId, ClientKey> keys_;
  std::set<KeyId> barriers_;  // keys of barriers, which wait for pushes
  std::vector<KeyId> ready_;
};

}  // namespace tkv
