// When whoever has lost a connection dials again: after 50 ms, each time twice as late, at most a
// second.

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
  // A connection has been made.
  void Reset() { wait_ = kFirst; }

 private:
  friend class StateWriter;  // for checks: compares what machines remember

  static constexpr Time kFirst = 50 * kMillisecond;
  static constexpr Time kLongest = 1 * kSecond;
  Time wait_ = kFirst;
};

}  // namespace tkv
