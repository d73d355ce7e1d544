// The time for which a peer has taken none of the output that waits for it.

#pragma once

#include <cstdint>

#include "transport/socket/reactor.h"

namespace tkv {

// A clock that runs while output waits and the peer takes none of it.
class StallClock {
 public:
  // Notes the result of an attempt to write: `is_stuck` if output still waits for the peer.
  // `taken` grows whenever the peer takes some; the clock then starts again.
  void Note(bool is_stuck, uint64_t taken) {
    const bool has_taken = taken != taken_;
    taken_ = taken;
    if (!is_stuck) {
      since_ = 0;
    } else if (since_ == 0 || has_taken) {
      since_ = SteadyNow();
    }
  }

  bool is_running() const { return since_ != 0; }
  // Returns the nanoseconds since the peer has taken something; 0 if the clock does not run.
  int64_t Elapsed(int64_t now) const { return is_running() ? now - since_ : 0; }

 private:
  int64_t since_ = 0;   // 0: it does not run
  uint64_t taken_ = 0;  // as noted last
};

}  // namespace tkv
