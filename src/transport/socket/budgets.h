// Bounds on the time, connections and bytes that a process spends on unproductive peers.  Each
// stage of a peer has its own bounds.  The table in docs/protocol.md lists them.

#pragma once

#include <cstddef>
#include <cstdint>

namespace tkv {

// The limits of one endpoint.
struct SocketBudgets {
  // Strangers: connected peers that have not yet proved their membership.  At most 128 bytes of
  // each are buffered.  If there are more, the oldest is closed.  TCP strangers and Unix socket
  // strangers are counted separately.  A process of another user on a Unix socket is closed as soon
  // as it is accepted.
  int64_t handshake_nanoseconds = 2'000'000'000;
  size_t strangers_max = 256;
  // Guests: peers that have proved that they belong to the job, and that its node has not welcomed
  // yet.  Each may have one head of 4 KiB at a time, no body and no file.
  int64_t hello_nanoseconds = 5'000'000'000;     // until the first frame
  int64_t welcome_nanoseconds = 30'000'000'000;  // from then on
  size_t guests_max = 1024;                      // if there are more, the oldest is closed
  // Every open connection that the peer has dialed: bounds of the output that waits until it reads.
  // Beyond a bound the connection is closed.
  size_t head_bytes_max = size_t{64} << 20;  // heads of frames
  size_t body_bytes_max = size_t{1} << 30;   // bodies, queued and lent; a single body may be larger
  int64_t unread_nanoseconds = 30'000'000'000;
  int64_t stand_nanoseconds = 5'000'000'000;  // until waiting output is first reported
  // Any connection: about as many bytes are read, and copied from shared memory, before others have
  // their turn.
  size_t turn_bytes_max = size_t{8} << 20;
  // Closed connections.
  int64_t linger_nanoseconds = 1'000'000'000;  // until the peer has closed its side
  // Closed by this side while their peers may still read lent memory.  If there are more, the
  // oldest is dropped and its lent memory is used again.
  size_t unclosed_max = 256;
};

}  // namespace tkv
