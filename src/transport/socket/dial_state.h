// The progress of one dial: the addresses that are still to be tried.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "transport/address.h"

namespace tkv {

// The state of a dial, changed only by the dialer (dialer.h).
struct DialState {
  explicit DialState(std::string dialed) : address(std::move(dialed)) {}

  std::string address;                   // as passed to Endpoint::Dial
  std::deque<PeerAddress> alternatives;  // addresses still to be tried
  bool has_tried = false;                // at least one address has been tried
  uint16_t port = 0;                     // port for the name that is being looked up
  uint64_t attempt = 0;  // number of the present attempt; results of earlier ones are ignored
  int64_t attempt_deadline = 0;  // when the next address is tried; 0: no time limit

  // Returns true if the address being tried has not answered in time and there is another.
  bool IsToTryNext(int64_t now) const {
    return attempt_deadline != 0 && attempt_deadline <= now && !alternatives.empty();
  }
};

}  // namespace tkv
