// The input of a connection: reads frames from the socket and hands them to the handler.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tkv/stats.h"
#include "transport/socket/file_passing.h"
#include "transport/socket/frame_writer.h"
#include "transport/socket/input_buffer.h"
#include "transport/socket/landing.h"
#include "transport/socket/lending.h"
#include "transport/socket/stream_socket.h"
#include "transport/transport.h"
#include "wire/frame_layout.h"

namespace tkv {

// A reader of frames.  Bodies are read directly into the memory that the handler names, or are
// found in the peer's shared memory.  A peer that is not welcome yet may send only small heads.
class FrameReader {
 public:
  // The result of a turn of reading.
  enum class Result : uint8_t {
    kMore,   // the turn is over, or Stop was called
    kEmpty,  // all bytes that have arrived were read
    kEnded,  // the peer has closed the connection, or the socket has failed
  };

  // The arguments have to outlive the reader.  The reader counts the bytes that arrive, and gives
  // records of shared memory for the peer to the writer.
  FrameReader(StreamSocket* socket, FrameWriter* writer, TrafficStats* traffic)
      : socket_(socket), writer_(writer), traffic_(traffic) {}

  // Allows frames to be handled until Stop.  `lending` has the peer's shared memory; null: bodies
  // come only through the socket.
  void Start(Lending* lending);
  // Makes Read return after the present frame, because frames are no longer wanted.
  void Stop() { is_stopped_ = true; }

  // Reads the available bytes and hands whole frames of this link to the handler.  The turn ends
  // after about `bytes_max` bytes from the socket, or as many from shared memory.  Bytes to be
  // thrown away go to `scratch`.
  //   throws  the fault in the peer's bytes
  Result Read(LinkHandler* handler, uint64_t link, std::vector<std::byte>* scratch,
              size_t bytes_max);
  // Throws the bodies away that are still to land in this memory.
  void ReleaseTarget(const void* data, size_t bytes) { landing_.ReleaseTarget(data, bytes); }

  // ---- trust in the peer
  // Notes that the peer is welcome: the handler knows it, or this side has dialed it.
  void Welcome() { is_welcome_ = true; }
  // Asks the handler if the peer is welcome, unless that is known.
  bool AskWelcome(LinkHandler* handler, uint64_t link);
  bool is_welcome() const { return is_welcome_; }
  // Returns true if a whole frame has arrived: the first one is HELLO.
  bool has_said_hello() const { return has_said_hello_; }

 private:
  struct Turn;
  struct Targets;

  void FindTargets(Targets* targets, std::vector<std::byte>* scratch);
  ssize_t Receive(std::vector<iovec>* pieces);
  void TakeFiles(AttachedFiles* files);
  void NoteReceived(const Targets& targets, size_t bytes);
  bool ParseAll(Turn* turn);
  bool Parse(Turn* turn);
  bool ParseRecord();
  bool ParseHead(Turn* turn);
  bool ParseBodies(Turn* turn);
  void Land(Turn* turn, const FrameHeader& header);

  StreamSocket* const socket_;
  FrameWriter* const writer_;
  TrafficStats* const traffic_;
  Lending* lending_ = nullptr;
  bool is_stopped_ = true;
  bool is_welcome_ = false;
  bool has_said_hello_ = false;
  InputBuffer buffer_;
  Landing landing_;
};

}  // namespace tkv
