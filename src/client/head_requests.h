// The requests of a client to the head that have no answer yet, such as COMMIT and GOODBYE.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "wire/effects.h"

namespace tkv {

// A lost connection may lose a request or its answer.  Each request is therefore kept until its
// answer has arrived, and sent again when the head can be reached again.  Without a head for a
// patience, the operations of all requests end (`OutOfReach`).
class HeadRequests {
 public:
  //   patience  for a head that cannot be reached
  explicit HeadRequests(Time patience) : patience_(patience) {}

  // Sends a request, and keeps it.
  //   request  its `seq` is the operation, which may have one request at a time
  void Send(Message request, Effects* effects);
  // Removes the request of an operation.  Returns false if there is none: the answer that has
  // arrived is a repeated one, or comes too late.
  bool End(uint64_t op) { return requests_.erase(op) > 0; }
  bool Has(uint64_t op) const { return requests_.contains(op); }
  bool empty() const { return requests_.empty(); }

  // Sends all requests again: the head can be reached (again).
  void Opened(Effects* effects);
  void Closed(Time now);
  void Ended(Time now);  // the head's process has ended
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
  friend class StateWriter;  // for checks: compares the states of machines
  Time patience_;
  std::map<uint64_t, Message> requests_;
  Time lost_since_ = kNever;
  bool has_ended_ = false;
};

}  // namespace tkv
