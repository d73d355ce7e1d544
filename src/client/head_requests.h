// The requests of a client to the head that have no answer yet: COMMIT, GOODBYE, and PING
// with a number.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "wire/effects.h"

namespace tkv {

// A lost connection may lose a request or its answer.  Each request is therefore kept until its
// answer has arrived, and sent again when the head can be reached again.  If the head's process has
// ended, or was out of reach for the patience, OutOfReach returns true.  The client then fails
// these operations; a change of the updater is withdrawn first.
class HeadRequests {
 public:
  //   patience  for a head that cannot be reached
  explicit HeadRequests(Time patience) : patience_(patience) {}

  // Sends a request, and keeps it.
  //   request  its `seq` is the operation, which may have one request at a time
  void Send(Message request, Effects* effects);
  // Forgets the request of an operation, because it was answered or has ended.  Returns false if
  // there was none: an answer is then a repeated one, or too late.
  bool End(uint64_t op) { return requests_.erase(op) > 0; }
  bool Has(uint64_t op) const { return requests_.contains(op); }

  // Sends all requests again: the head can be reached (again).
  void Opened(Effects* effects);
  void Closed(Time now);  // the connection is lost: the patience begins
  void Ended(Time now);   // the head's process has ended: OutOfReach is true at once
  // Returns true while there is no connection, also within the patience.
  bool is_lost() const { return lost_since_ != kNever; }
  // Returns true if the head has ended, or was out of reach for the patience.
  bool OutOfReach(Time now) const { return now >= GivesUpAt(); }
  // Returns the time from which OutOfReach is true, or kNever.
  Time GivesUpAt() const;
  // Returns the error of operations that need a head which is out of reach.
  Error WhyNone(Time now) const;
  // Returns the operations with a request, in ascending order.
  std::vector<uint64_t> Operations() const;

 private:
  friend class StateWriter;  // for checks: compares the states of state machines
  Time patience_;
  std::map<uint64_t, Message> requests_;
  Time lost_since_ = kNever;
  bool has_ended_ = false;
};

}  // namespace tkv
