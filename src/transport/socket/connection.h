// A connection of the socket transport: first the handshake, then frames.  Reads into the memory
// that the receiver names, writes from the memory of the bodies; never blocks.

#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/socket/dial_state.h"
#include "transport/socket/handshake.h"
#include "transport/socket/lending.h"
#include "transport/socket/process_watch.h"
#include "transport/socket/tls.h"
#include "transport/transport.h"
#include "wire/value_check.h"

namespace tkv {

// A connection of an endpoint, in one of several stages.
struct Connection {
  using Socket = boost::asio::generic::stream_protocol::socket;
  enum class Stage : uint8_t { kDialing, kHandshake, kSecuring, kOpen, kEnding, kLingering };
  // The result of an attempt to read or write.
  //   kPaused: interrupted so that other connections get their turn; call again.
  //   kWaiting: nothing can leave until the peer gives shared memory back.
  enum class Outcome : uint8_t { kMore, kBlocked, kOver, kPaused, kWaiting };

  explicit Connection(boost::asio::io_context* context) : socket(*context) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The stage of trust of the peer; each kind has a budget of its own (budgets.h).
  enum class Standing : uint8_t { kNone, kUnixStranger, kTcpStranger, kGuest, kMember };

  uint64_t number = 0;  // the endpoint's own name for the connection
  uint64_t link = 0;    // the user's name for it; 0: not accepted yet
  bool is_unix = false;
  bool adds_body_checks = false;
  Stage stage = Stage::kDialing;
  Standing standing = Standing::kNone;
  Socket socket;
  ProcessFile process;            // the peer, if it is a process of this host
  std::string peer;               // address of the other side, for errors
  std::optional<DialState> dial;  // if this side has dialed
  std::optional<Handshake> handshake;
  std::optional<Tls> tls;          // from Stage::kSecuring on
  std::optional<Lending> lending;  // on a Unix socket
  bool has_ended = false;          // the peer has closed it and reads nothing more
  bool is_starved = false;         // it ends, because there was no memory for it
  int64_t deadline = 0;  // end of dialing, handshake, HELLO, WELCOME or lingering; 0: none
  // Since when the peer has taken none of the waiting output; 0: it takes.
  int64_t blocked_since = 0;
  int64_t next_stand = 0;       // age of `blocked_since` at the next report; 0: no report yet
  bool is_welcome = false;      // the handler knows the peer, or this side dialed it
  bool has_said_hello = false;  // a whole frame has arrived
  bool has_more_time = false;   // the deadline for WELCOME is set
  bool is_reading = false, is_writing = false;  // the reactor has been asked to report readiness

  bool is_dialer() const { return dial.has_value(); }

  // Reads the available bytes and hands whole frames to the handler.  Returns kMore after about
  // `bytes_max` bytes, received and lent ones.
  //   throws  the fault in the peer's bytes
  Outcome Read(LinkHandler* handler, std::vector<std::byte>* scratch, size_t bytes_max);
  Outcome Write();
  void Queue(Frame frame);
  bool has_output() const {
    return !out_.empty() || !raw_out_.empty() || (tls && tls->has_output());
  }
  bool has_lent() const { return lending && lending->has_lent(); }
  // Returns the bytes of heads and records that wait for the peer.  The bytes of bodies are the
  // lent ones and, if more than one frame is queued, the queued ones.
  size_t waiting_head_bytes() const { return waiting_head_bytes_ + raw_out_.size(); }
  size_t waiting_body_bytes() const;
  const TrafficStats& traffic() const { return traffic_; }
  // Returns a number that grows whenever the peer takes bytes or gives lent memory back.
  uint64_t taken() const { return taken_; }
  void QueueRaw(std::string bytes) { raw_out_ += bytes; }
  // Drops the first queued frame with bodies and every frame after it.  Returns false if that frame
  // has left in part; the connection is then unusable.
  bool DropBodies();
  void ReleaseSource(const void* data, size_t bytes);
  void ReleaseTarget(const void* data, size_t bytes);
  // Reads and answers the handshake.
  Outcome ReadHandshake();

 private:
  struct Outgoing {
    Frame frame;
    size_t sent = 0;
    size_t head_bytes = 0, body_bytes = 0;  // sizes when the frame was queued
    // The checksum of the first `checked` bytes of the bodies, if they are checked.  The trailer
    // follows the bodies.
    std::optional<ValueCheck> check;
    size_t checked = 0;
    std::array<std::byte, ValueCheck::kBytes> trailer{};
    // Returns the bytes that go through the socket; the frame has lost its body if that was lent.
    size_t bytes() const {
      return frame.head.size() + frame.body_bytes + (check ? trailer.size() : 0);
    }
  };

  void MakeInputBuffer();
  bool Prepare(size_t* staged);
  void Dequeue(size_t count_left);  // drops the newest frames
  bool IsBetweenFrames() const { return out_.empty() || out_.front().sent == 0; }
  Outcome SendFile();
  static size_t CheckAhead(Outgoing* outgoing);
  void GatherOutput(std::vector<iovec>* pieces);
  ssize_t Give(std::vector<iovec>* pieces);
  void Sent(size_t bytes);
  void TakeFiles(msghdr* message);
  ssize_t Receive(std::vector<iovec>* pieces);
  size_t FillBlocks(const std::byte* data, size_t bytes);
  bool Parse(LinkHandler* handler);
  bool ParseRecord();
  void Land(LinkHandler* handler, size_t head_bytes, uint64_t body_bytes);
  void NoteLanded(const std::vector<iovec>& pieces, size_t bytes);
  bool TakeCheck();

  // Handshake bytes and records; they leave between frames, before the waiting frames.
  std::string raw_out_;
  std::deque<Outgoing> out_;
  size_t waiting_head_bytes_ = 0, waiting_body_bytes_ = 0;  // sums over out_
  uint64_t taken_ = 0;
  TrafficStats traffic_;
  size_t prepared_ = 0;  // number of the first frames of out_ that are ready to leave
  std::vector<std::byte> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  std::vector<Block> blocks_;  // of the frame that is landing
  size_t block_ = 0, block_offset_ = 0;
  bool is_landing_ = false;
  bool is_checked_ = false;                 // a checksum follows the bodies that are landing
  std::optional<ValueCheck> landed_check_;  // checksum of the bytes landed so far
};

}  // namespace tkv
