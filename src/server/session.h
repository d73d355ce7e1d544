// What a shard remembers of one life of a worker: which operations it has done, so that each is
// done once however often it arrives.

#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "server/chunk.h"
#include "wire/effects.h"

namespace tkv {

// The stores that a life has closed: all below a number, and some of the others.
class ClosedStores {
 public:
  static constexpr size_t kMax = size_t{1} << 16;  // closed ones above one that is open
  // False where there are too many.
  bool Add(uint32_t store) {
    if (Has(store)) return true;
    if (above_.size() >= kMax) return false;
    above_.insert(store);
    while (above_.erase(below_) > 0) ++below_;
    return true;
  }
  bool Has(uint32_t store) const { return store < below_ || above_.contains(store); }

 private:
  friend class StateWriter;  // for checks: compares what machines remember
  uint32_t below_ = 0;
  std::set<uint32_t> above_;
};

struct Session {
  static constexpr uint64_t kWindow = 1024;

  struct Result {
    uint64_t seq = 0;
    bool done = false;
    Type type{};  // of the reply, and what it said
    uint64_t number = 0;
    std::string extra;
  };

  SessionId id;
  Role role = Role::kWorker;
  LinkId link = kNoLink;
  uint64_t low = 0;              // every mutating operation below it has been answered
  std::vector<Result> window;    // mutating operations from `low` on, by seq
  std::vector<Message> waiting;  // async pushes whose predecessor is not done
  size_t parked = 0;             // pulls and DESCRIBEs
  size_t parked_bytes = 0;       // of ids that pulls wait with
  uint64_t newest_parked = 0;    // the largest number of a PULL that has waited
  ClosedStores closed;
  uint64_t pushes = 0;  // that have come, and the bytes of their bodies
  uint64_t pushed_bytes = 0;
  Time listed_at = 0;  // when the last LIST came, and how many at that time
  int listed = 0;

  Result* Find(uint64_t seq) {
    if (window.empty() || seq > window.back().seq) return nullptr;
    if (seq == window.back().seq) return &window.back();
    const auto at = LowerBound(seq);
    return at != window.end() && at->seq == seq ? &*at : nullptr;
  }
  // Enters an operation that is not there.
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
  bool IsDone(uint64_t seq) const {
    if (seq < low) return true;
    const Result* const result = const_cast<Session*>(this)->Find(seq);
    return result != nullptr && result->done;
  }
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
