// A client's side of its session with one server: what waits to leave, what has left and is not
// answered, and the limits of both (window, credit, pulled bytes).

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <deque>
#include <optional>
#include <vector>

#include "metrics/counters.h"
#include "wire/effects.h"

namespace tkv {

using OpId = uint64_t;  // grows with each operation of a client
inline constexpr OpId kNoOp = 0;

// What there is to do when a server's values are lost.
inline constexpr const char* kStartAgain =
    "; the job cannot go on: start it again from your checkpoint";

// Why a message was sent.
enum class Purpose : uint8_t {
  kOp,      // for an operation
  kReady,   // a push waits for the version that it follows
  kJoin,    // finding the place in a key after a new life
  kNotice,  // who is it that we wait for?
  kCancel,
};

struct Outgoing {
  Message message;
  OpId op = kNoOp;
  int priority = 0;
  Purpose purpose = Purpose::kOp;
  enum class Pulled : uint8_t { kNotCounted, kWaiting, kReady };
  Pulled pulled = Pulled::kNotCounted;  // which limit its answer counts against
  size_t pull_bytes = 0;
};

struct ServerSession {
  static constexpr uint64_t kWindow = 1024;
  // Of pushes that have left, where priorities are used: an urgent one waits behind no more.
  static constexpr uint64_t kPriorityBytes = uint64_t{16} << 20;

  enum class State : uint8_t { kIdle, kDialing, kHello, kOpen, kDead };

  uint32_t server = 0;
  State state = State::kIdle;
  LinkId link = kNoLink;
  uint64_t incarnation = 0;  // of the server, once known
  uint64_t credit_bytes = 0;
  uint64_t next_seq = 1;
  size_t unaccepted_bytes = 0;    // of bodies that have left
  size_t waiting_pull_bytes = 0;  // of pulls that may be parked
  size_t ready_pull_bytes = 0;    // of pulls that are answered at once
  std::optional<Error> dead;      // why nothing more can be done here
  bool is_to_pump = false;        // one of the client's pump_
  bool has_priorities = false;    // some that are not 0 have been seen

  std::deque<Outgoing> pushes;  // mutating operations, and pulls that follow them
  std::deque<Outgoing> pulls;   // other operations
  boost::unordered_flat_map<uint64_t, Outgoing> sent;  // by seq
  std::deque<uint64_t> mutating;                       // seqs that have left, in order

  Time down_since = kNever;  // kNever: connected, or never needed
  Time next_dial = kNever;
  Time redial_after = 0;
  Time last_heard = 0;
  Time next_ping = kNever;

  // For those who look; nothing that the client does depends on these.
  struct Counts {
    CurrentWait wait;        // of what is queued
    uint64_t welcomes = 0;   // connections that have been open
    uint64_t resends = 0;    // messages
    bool was_heard = false;  // last_heard is the moment of a word of the server's
  };
  Counts counts;

  // Every mutating operation below it has been answered.
  uint64_t Low() {
    while (!mutating.empty() && !sent.contains(mutating.front())) mutating.pop_front();
    return mutating.empty() ? next_seq : mutating.front();
  }
  // All messages, those that are still to leave too.
  void Forget() {
    pushes.clear();
    pulls.clear();
    sent.clear();
    mutating.clear();
    unaccepted_bytes = waiting_pull_bytes = ready_pull_bytes = 0;
  }
  bool busy() const { return !sent.empty() || !pushes.empty() || !pulls.empty(); }
};

}  // namespace tkv
