// The options of a client.

#pragma once

#include <cstddef>
#include <string>

#include "wire/effects.h"
#include "wire/version.h"

namespace tkv {

struct ClientOptions {
  std::string job;
  Time patience = 600 * kSecond;        // for other workers
  Time server_patience = 30 * kSecond;  // for a server, and for the head
  // After an operation's deadline: for the servers to name the workers that it waited for.
  Time answer_grace = 1 * kSecond;
  Time ping_after = 5 * kSecond;        // of silence on a link that owes an answer
  Protocol protocol;                    // the version and features of this process
  Time first_notice = 5 * kSecond;      // until the first "still waiting"; the time then doubles
  Time notice_step_max = 60 * kSecond;  // the longest time between two notices
  size_t pull_bytes_max = size_t{256} << 20;  // of answers under way, per server
  int observer_tries = 8;  // of an observer's pull, to get equal versions of all chunks
};

}  // namespace tkv
