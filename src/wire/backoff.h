// Exponential backoff for a process that has lost a connection: the process waits 50 ms before it
// dials again, then twice as long each time, at most one second.

#pragma once

#include <algorithm>

#include "wire/effects.h"

namespace tkv {

// The delay before the next attempt to connect to one peer.
class Backoff {
 public:
  // Returns the time to wait now, and doubles the next one.
  Time Next() {
    const Time now = wait_;
    wait_ = std::min(wait_ * 2, kLongest);
    return now;
  }
  void Reset() { wait_ = kFirst; }
  // Notes the end of a connection.  Only a connection that was open for a second resets the delay:
  // a peer that closes at once would close the next connection at once, too.
  void Ended(Time open_for) {
    if (open_for >= kLongest) Reset();
  }

 private:
  friend class StateWriter;  // for checks: compares the states of machines

  static constexpr Time kFirst = 50 * kMillisecond;
  static constexpr Time kLongest = 1 * kSecond;
  Time wait_ = kFirst;
};

}  // namespace tkv
