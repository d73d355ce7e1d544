// The output of a connection: queues frames and writes them to the socket as the peer takes them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tkv/stats.h"
#include "transport/socket/lending.h"
#include "transport/socket/output_queue.h"
#include "transport/socket/stall_clock.h"
#include "transport/socket/stream_socket.h"
#include "wire/frame_layout.h"

namespace tkv {

// A writer of frames.  Bodies are written directly from the memory of their owners, and large ones
// are lent if possible.  Before the connection is open, the writer sends the handshake.
class FrameWriter {
 public:
  // The result of a turn of writing.
  enum class Result : uint8_t {
    kDone,     // all output has left
    kBlocked,  // the socket takes no more output now
    kPaused,   // the turn is over; call again
    kWaiting,  // nothing can leave until the peer gives shared memory back
    kFailed,   // the connection cannot write any more
  };

  // The socket and the counters have to outlive the writer, which counts the bytes that leave.
  FrameWriter(StreamSocket* socket, TrafficStats* traffic) : socket_(socket), traffic_(traffic) {}

  // ---- modes
  // Sets the mode in which a checksum of its bodies follows each frame.
  void CheckBodies(bool checks_bodies) { checks_bodies_ = checks_bodies; }
  // Starts to lend large bodies, until StopLending.  Null: none can be lent.  Lent bodies stay with
  // `lending` until the peer gives them back.
  void StartLending(Lending* lending);
  void StopLending() { lends_bodies_ = false; }

  // ---- the queue
  void Add(Frame frame);
  // Adds bytes of the handshake or records of shared memory.  They leave before waiting frames.
  void AddRaw(const std::string& bytes) { queue_.AddRaw(bytes); }
  bool has_output() const { return !queue_.is_empty() || socket_->has_output(); }
  // Returns the bytes of heads and records that wait for the peer.
  size_t waiting_head_bytes() const { return queue_.head_bytes(); }
  // Returns the bytes of bodies that are lent and, if more than one frame is queued, of those
  // queued.
  size_t waiting_body_bytes() const {
    return queue_.body_bytes() + (lending_ != nullptr ? lending_->lent_bytes() : 0);
  }
  bool has_lent() const { return lending_ != nullptr && lending_->has_lent(); }
  // See OutputQueue.
  bool DropBodies() { return queue_.DropBodies(); }
  void ReleaseSource(const void* data, size_t bytes) { queue_.ReleaseSource(data, bytes); }

  // ---- writing
  // Writes the waiting output, and notes if the peer takes it.  Any error ends the output, even an
  // error of this machine alone (no memory, a firewall rule).  A read of the bytes that have
  // arrived then reports the end of the connection.
  //   returns  kFailed  once; kDone from then on
  Result Write();
  // Writes the rest after the user has closed the connection.  Notes nothing.
  Result WriteRest() { return WriteTurn(); }
  // Returns true if Write has failed.
  bool has_failed() const { return has_failed_; }
  // Ends the output; the peer sees the end after the bytes that the kernel already has.  While the
  // peer may read lent memory, this side still listens: only the end of the peer's side says that
  // the peer reads no more.
  void End();

  // Returns true if output waits and the peer takes none of it.  BlockedFor returns for how long,
  // in nanoseconds; 0 if it takes some.
  bool is_blocked() const { return stall_.is_running(); }
  int64_t BlockedFor(int64_t now) const { return stall_.Elapsed(now); }

 private:
  Result WriteTurn();
  bool Prepare(size_t* staged);
  Result SendFile();
  void Sent(size_t bytes);

  StreamSocket* const socket_;
  TrafficStats* const traffic_;
  Lending* lending_ = nullptr;
  bool lends_bodies_ = false;
  bool checks_bodies_ = false;
  bool has_failed_ = false;
  OutputQueue queue_;
  // Grows with the bytes that leave the queue, and with the encrypted bytes that leave the socket.
  uint64_t taken_ = 0;
  StallClock stall_;
};

}  // namespace tkv
