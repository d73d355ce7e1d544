// When a process that has lost a connection dials again: after 50 ms, each time twice as late, at most
// a second.

#pragma once

#include <algorithm>

#include "wire/effects.h"

namespace tkv {

class Backoff {
 public:
  // How long to wait now; the next wait is longer.
  Time Next() {
    const Time now = wait_;
    wait_ = std::min(wait_ * 2, kLongest);
    return now;
  }
  void Reset() { wait_ = kFirst; }
  // A connection has ended that was open for so long.  One that ends at once is as good as none: the
  // next one would end the same way.
  void Ended(Time open_for) {
    if (open_for >= kLongest) Reset();
  }

 private:
  friend class StateWriter;  // for checks: compares what machines remember

  static constexpr Time kFirst = 50 * kMillisecond;
  static constexpr Time kLongest = 1 * kSecond;
  Time wait_ = kFirst;
};

}  // namespace tkv
