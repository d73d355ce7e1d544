// The operations of a client that have not ended, with their deadlines.

#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/pooled_table.h"
#include "base/small_vector.h"
#include "client/operation.h"
#include "metrics/counters.h"

namespace tkv {

struct Op {
  enum class Creating : uint8_t { kNone, kRest, kFirst };  // which chunks of a key are being made
  // The neighbours of an operation in the list of its verb, and the index of that list.
  struct ListEntry {
    size_t verb = 0;
    OpId older = kNoOp;
    OpId newer = kNoOp;
  };

  OpId id = kNoOp;
  Operation operation;
  KeyId key;
  Time begin = 0;
  Time deadline = 0;
  Time next_notice = 0;
  Time notice_step = 0;
  bool has_started = false;  // its messages are queued or sent
  uint64_t round = 0;
  uint32_t unaccepted = 0;            // PUSHes (INITs, CONTROLs, DELETEs) without an answer
  uint32_t unpulled = 0;              // PULLs without an answer
  bool is_accepted = false;           // its outcome kAccepted was reported
  bool expired = false;               // past its deadline; asks which workers are missing
  bool cancelled = false;             // at least one of its pulls has been cancelled
  bool is_reported = false;           // it was cancelled, and its failure was reported
  Time grace = kNever;                // once expired: the time at which it fails without answers
  std::vector<Rank> missing;          // workers that it waits for, as a server named them
  SmallVector<uint64_t, 2> versions;  // of the chunks, as a pull has got them
  std::vector<ChunkState> states;     // of the chunks, of a cut
  TableStats table;                   // the sum over the chunks that have answered
  bool owns_value = false;            // no longer reads the user's memory
  int tries = 0;
  Creating creating = Creating::kNone;  // of an init
  uint64_t grant = 0;                   // of an init: permits creating; 0: none
  CurrentWait wait;                     // the reason why it cannot start yet
  ListEntry entry;

  // Returns true if its messages read memory of the user.
  bool LendsValue() const {
    return !owns_value && operation.value() != nullptr && operation.value()->bytes.size > 0;
  }
  Time NextTime() const { return expired ? grace : std::min(deadline, next_notice); }
  // Returns its verb and key: the beginning of messages about it.
  std::string Prefix() const;
  Error Prefixed(const Error& error) const;
};

class OpTable {
 public:
  struct Times {
    Time patience = 0;      // of operations that name none
    Time first_notice = 0;  // from the beginning to the first notice
  };

  explicit OpTable(Times times) : times_(times) {}

  OpId next() const { return last_ + 1; }  // the id that Add will give
  Op& Add(Operation operation, Time now);
  void Erase(Op* op);
  Op* Find(OpId id) { return ops_.Find(id); }
  const Op* Find(OpId id) const { return ops_.Find(id); }
  size_t size() const { return ops_.size(); }
  // Returns the operations that match, in ascending order.
  template <typename F>
  std::vector<OpId> Where(const F& matches) const {
    std::vector<OpId> ids;
    ids.reserve(ops_.size());
    ops_.ForEach([&](OpId id, const Op& op) {
      if (matches(op)) ids.push_back(id);
    });
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  // ---- deadlines
  // Has TakeDue return the operation at its NextTime.
  void SetTimer(const Op& op);
  // Removes the timers that are due, and returns their operations in ascending order.
  std::vector<OpId> TakeDue(Time now);
  // Returns the time of the earliest timer, or kNever.
  Time NextTimer();

  // ---- notices: the oldest operation of each verb has the notice for all
  // Takes an expired operation out of the list of its verb.
  void LeaveVerb(Op* op);
  bool IsOldestOfVerb(const Op& op) const { return verbs_[op.entry.verb].oldest == op.id; }
  size_t CountOfVerb(const Op& op) const { return verbs_[op.entry.verb].count; }

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  // The operations of one verb that are under way and not expired.
  struct VerbList {
    std::string verb;
    OpId oldest = kNoOp;
    OpId newest = kNoOp;
    size_t count = 0;  // 0: another verb may take the entry
  };

  void JoinVerb(Op* op);
  OpId PopTimer();

  Times times_;
  OpId last_ = kNoOp;
  PooledTable<Op> ops_;
  // A heap, the earliest first: one entry for each operation, and some for ended operations.
  std::vector<std::pair<Time, OpId>> timers_;
  std::vector<VerbList> verbs_;
};

}  // namespace tkv
