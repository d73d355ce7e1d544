// One connection: handshake, then frames.  Reads into the memory that the receiver names, writes
// from where the bodies lie; never blocks.

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

#include "transport/address.h"
#include "transport/socket/handshake.h"
#include "transport/socket/lending.h"
#include "transport/socket/tls.h"
#include "transport/transport.h"
#include "wire/value_check.h"

namespace tkv {

struct Connection {
  using Socket = boost::asio::generic::stream_protocol::socket;
  enum class Stage : uint8_t { kDialing, kHandshake, kSecuring, kOpen, kEnding, kLingering };
  // What came of an attempt to read or write.  kPaused: for others' sake, and to be gone on with;
  // kWaiting: until the peer gives shared memory back.
  enum class Outcome : uint8_t { kMore, kBlocked, kOver, kPaused, kWaiting };

  explicit Connection(boost::asio::io_context* context) : socket(*context) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // What the endpoint counts it as: each kind has a budget of its own (budgets.h).
  enum class Standing : uint8_t { kNone, kUnixStranger, kTcpStranger, kGuest, kMember };

  uint64_t number = 0;  // of the endpoint's own
  uint64_t link = 0;    // the user's name for it; 0: not accepted yet
  bool is_dialer = false;
  bool is_unix = false;
  bool adds_body_checks = false;
  Stage stage = Stage::kDialing;
  Standing standing = Standing::kNone;
  Socket socket;
  int process = -1;                      // of the peer on this host, as a file: tells its end
  std::string peer;                      // where the other side is, for errors
  std::string dialed;                    // the address, as its user has given it
  std::deque<PeerAddress> alternatives;  // that are still to be dialed
  bool has_tried = false;                // one of them
  uint16_t port = 0;                     // of the name that is being looked up
  uint64_t attempt = 0;                  // which of them is being dialed
  int64_t attempt_deadline = 0;          // from when the next one is dialed
  std::optional<Handshake> handshake;
  std::optional<Tls> tls;          // from Stage::kSecuring on
  std::optional<Lending> lending;  // on a Unix socket
  bool has_ended = false;          // the peer has closed it: it reads nothing any more
  int64_t deadline = 0;            // of dialing, handshake, HELLO, WELCOME or lingering
  int64_t blocked_since = 0;  // the peer has taken nothing, though there is output; 0: it takes
  int64_t next_stand = 5'000'000'000;           // since then, when it is told of
  bool is_welcome = false;                      // the handler knows the peer, or has dialed it
  bool has_said_hello = false;                  // a whole frame has come
  bool has_more_time = false;                   // for that
  bool is_reading = false, is_writing = false;  // the reactor tells when it can go on

  // Reads what is there, at most about `bytes_max`, and hands whole frames to the handler.
  //   throws  what is wrong with the peer's bytes
  Outcome Read(LinkHandler* handler, std::vector<std::byte>* scratch, size_t bytes_max);
  Outcome Write();
  void Queue(Frame frame);
  bool has_output() const {
    return !out_.empty() || !raw_out_.empty() || (tls && tls->has_output());
  }
  bool has_lent() const { return lending && lending->has_lent(); }
  // What is kept for a peer that has not taken it yet: heads and records, and bodies where they are
  // more than one frame's.
  size_t waiting_head_bytes() const { return waiting_head_bytes_ + raw_out_.size(); }
  size_t waiting_body_bytes() const;
  const TrafficStats& traffic() const { return traffic_; }
  // Grows with what the peer takes.
  uint64_t taken() const { return taken_; }
  void QueueRaw(std::string bytes) { raw_out_ += bytes; }
  // Drops frames that refer to memory.  False where one has left in part: the connection is of no
  // use any more.
  bool DropBodies();
  void ReleaseSource(const void* data, size_t bytes);
  void ReleaseTarget(const void* data, size_t bytes);
  // Bytes of the handshake.
  Outcome ReadHandshake();

 private:
  struct Outgoing {
    Frame frame;
    size_t sent = 0;
    size_t head_bytes = 0, body_bytes = 0;  // as it was queued
    // Where the bodies are checked: of their first `checked` bytes, and what follows them.
    std::optional<ValueCheck> check;
    size_t checked = 0;
    std::array<std::byte, ValueCheck::kBytes> trailer{};
    // A body that has been lent is none of the frame's any more.
    size_t bytes() const {
      return frame.head.size() + frame.body_bytes + (check ? trailer.size() : 0);
    }
  };

  bool Prepare(size_t* staged);
  void Dequeue(size_t count_left);  // the last ones
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

  std::string raw_out_;  // of the handshake, and records: between frames, before those that wait
  std::deque<Outgoing> out_;
  size_t waiting_head_bytes_ = 0, waiting_body_bytes_ = 0;  // of out_
  uint64_t taken_ = 0;
  TrafficStats traffic_;
  size_t prepared_ = 0;  // of them, the first, that can leave as they are
  std::vector<std::byte> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  std::vector<Block> blocks_;  // of the frame that is landing
  size_t block_ = 0, block_offset_ = 0;
  bool is_landing_ = false;
  bool is_checked_ = false;                 // a check follows the bodies that are landing
  std::optional<ValueCheck> landed_check_;  // of what has landed of them
};

}  // namespace tkv
