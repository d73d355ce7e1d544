// Rehearsed failures: an endpoint that fails at the n-th message of a type, as a list of failpoints
// says.  All else it leaves to the endpoint behind it.
//   WHO:DIRECTION:TYPE:COUNT:ACTION, several with commas
//     WHO        "worker 1", "server 0", "head": how errors name the process
//     DIRECTION  "sent", when the transport has taken it; "received", when it is dealt with
//     TYPE       of a message, by its name in docs/protocol.md: PUSH
//     COUNT      which one of them; the first is 1
//     ACTION     "kill" and "stop" this process (SIGKILL, SIGSTOP), "cut" the connection

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"
#include "wire/frame.h"

namespace tkv {

struct Failpoint {
  enum class Action : uint8_t { kKill, kStop, kCut };

  bool at_sent = false;
  Type type{};
  int count = 1;
  Action action = Action::kKill;
};

// Returns the failpoints of a process.
//   throws  kInvalidArgument  a text that cannot be read; the message names it
std::vector<Failpoint> FailpointsOf(const std::string& who, const std::string& text);

std::unique_ptr<Endpoint> WithFailpoints(std::unique_ptr<Endpoint> endpoint,
                                         std::vector<Failpoint> failpoints);

}  // namespace tkv
