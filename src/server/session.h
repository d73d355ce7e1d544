// The session of one incarnation of a worker on a shard.  A session remembers the
// completed operations, so that each one is executed once, however often it arrives.

#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/check.h"
#include "server/chunk.h"
#include "wire/effects.h"

namespace tkv {

// The set of stores that an incarnation has closed: all below a number, and some above it.
class ClosedStores {
 public:
  static constexpr size_t kMax = size_t{1} << 16;  // closed ones above one that is open
  // Returns false if the set has no space for another store.
  bool Add(uint32_t store) {
    if (Has(store)) return true;
    if (above_.size() >= kMax) return false;
    above_.insert(store);
    while (above_.erase(below_) > 0) ++below_;
    return true;
  }
  bool Has(uint32_t store) const { return store < below_ || above_.contains(store); }

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  uint32_t below_ = 0;
  std::set<uint32_t> above_;
};

// The session of one sender: an incarnation of a worker, or an observer.
struct Session {
  static constexpr uint64_t kWindow = 1024;

  struct Result {
    uint64_t seq = 0;
    bool done = false;
    Type type{};  // of the reply, like the fields below
    uint64_t number = 0;
    std::string extra;
  };

  // The end of the sender, as far as the server knows without the head.
  enum class End : uint8_t {
    kNone,
    kLeft,   // the worker has said that it leaves
    kEnded,  // its process has ended
  };

  SessionId id;
  Role role = Role::kWorker;
  End end = End::kNone;
  LinkId link = kNoLink;
  uint64_t low = 0;              // the client has the replies of all mutating operations below
  std::vector<Result> window;    // mutating operations from `low` on, ascending by seq
  std::vector<Message> waiting;  // async pushes whose predecessor is not done
  size_t parked = 0;             // number of waiting pulls and DESCRIBEs
  size_t parked_bytes = 0;       // ids in waiting pulls
  uint64_t newest_parked = 0;    // largest seq of a PULL that has waited
  ClosedStores closed;
  uint64_t pushes = 0;  // number of pushes, and the bytes of their bodies
  uint64_t pushed_bytes = 0;
  Time listed_at = 0;  // arrival of the last LIST, and number of LISTs at that time
  int listed = 0;

  Result* Find(uint64_t seq) {
    if (window.empty() || seq > window.back().seq) return nullptr;
    if (seq == window.back().seq) return &window.back();
    const auto at = LowerBound(seq);
    return at != window.end() && at->seq == seq ? &*at : nullptr;
  }
  // Adds an operation that is not in the window yet.
  void Begin(uint64_t seq) {
    const bool is_newest = window.empty() || seq > window.back().seq;
    window.insert(is_newest ? window.end() : LowerBound(seq), Result{.seq = seq});
  }
  void Finish(uint64_t seq, const Message& reply) {
    if (Result* const result = Find(seq)) {
      result->done = true;
      result->type = reply.type;
      result->number = reply.number;
      result->extra = reply.extra;
    }
  }
  // Returns true if the operation is done.
  bool IsDone(uint64_t seq) const {
    if (seq < low) return true;
    const Result* const result = const_cast<Session*>(this)->Find(seq);
    return result != nullptr && result->done;
  }
  // Removes a pull from the counters of waiting operations.
  void Unpark(const ParkedPull& pull) {
    Drop(&parked);
    Drop(&parked_bytes, pull.mixes.size() * sizeof(uint64_t));
  }
  // Removes the operations below `new_low` from the window.
  void Raise(uint64_t new_low) {
    if (new_low <= low) return;
    low = new_low;
    window.erase(window.begin(), LowerBound(low));
  }

 private:
  std::vector<Result>::iterator LowerBound(uint64_t seq) {
    return std::lower_bound(window.begin(), window.end(), seq,
                            [](const Result& result, uint64_t s) { return result.seq < s; });
  }
};

}  // namespace tkv
