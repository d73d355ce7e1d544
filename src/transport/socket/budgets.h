// What a process spends on peers that do nothing for it: bounds in time, connections and bytes, for
// each stage that a peer goes through.  docs/protocol.md has them as a table.

#pragma once

#include <cstddef>
#include <cstdint>

namespace tkv {

struct SocketBudgets {
  // Strangers: have connected and have not proved who they are.  Each has about 128 bytes, and the
  // oldest is closed where there are more.  Those of TCP and those of Unix sockets are counted
  // apart; another user's process is closed when it is accepted.
  int64_t handshake_nanoseconds = 2'000'000'000;
  size_t strangers_max = 256;
  // Guests: are of the job and have not been welcomed by its node.  Each has one head of 4 KiB at a
  // time, no body and no file.
  int64_t hello_nanoseconds = 5'000'000'000;     // until the first frame
  int64_t welcome_nanoseconds = 30'000'000'000;  // from then on
  size_t guests_max = 1024;                      // the oldest is closed where there are more
  // Members that have dialed: what waits until they read.  Beyond it the connection is closed.
  size_t head_bytes_max = size_t{64} << 20;  // heads of frames
  size_t body_bytes_max = size_t{1} << 30;   // bodies, queued and lent; one may be larger
  int64_t unread_nanoseconds = 30'000'000'000;
  int64_t stand_nanoseconds = 5'000'000'000;  // when it is first told of
  // Closed ones.
  int64_t linger_nanoseconds = 1'000'000'000;  // until the peer has closed its side
  size_t unclosed_max = 256;  // that hold what was lent until their peers close; the oldest goes
};

}  // namespace tkv
