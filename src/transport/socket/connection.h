// One connection: handshake, then frames.  Reads into the memory that the receiver names, writes
// from where the bodies lie; never blocks.

#pragma once

#include <sys/uio.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/socket/address.h"
#include "transport/socket/handshake.h"
#include "transport/socket/lending.h"
#include "transport/transport.h"

namespace tkv {

struct Connection {
  using Socket = boost::asio::generic::stream_protocol::socket;
  enum class Stage : uint8_t { kDialing, kHandshake, kOpen, kEnding, kLingering };
  // What came of an attempt to read or write.  kPaused: for others' sake, and to be gone on with;
  // kWaiting: until the peer gives shared memory back.
  enum class Outcome : uint8_t { kMore, kBlocked, kOver, kPaused, kWaiting };

  explicit Connection(boost::asio::io_context* context) : socket(*context) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  uint64_t number = 0;  // of the endpoint's own
  uint64_t link = 0;    // the user's name for it; 0: not accepted yet
  bool is_dialer = false;
  bool is_unix = false;
  bool adds_body_checks = false;
  Stage stage = Stage::kDialing;
  Socket socket;
  int process = -1;                        // of the peer on this host, as a file: tells its end
  std::string peer;                        // where the other side is, for errors
  std::deque<SocketAddress> alternatives;  // that are still to be dialed
  bool has_tried = false;                  // one of them
  std::optional<Handshake> handshake;
  std::optional<Lending> lending;               // on a Unix socket
  bool has_ended = false;                       // the peer has closed it: it reads nothing any more
  int64_t deadline = 0;                         // of dialing, handshake or lingering
  bool is_reading = false, is_writing = false;  // the reactor tells when it can go on

  // Reads what is there, at most about `bytes_max`, and hands whole frames to the handler.
  //   throws  what is wrong with the peer's bytes
  Outcome Read(LinkHandler* handler, std::vector<std::byte>* scratch, size_t bytes_max);
  Outcome Write();
  void Queue(Frame frame) {
    if (adds_body_checks) AddBodyCheck(&frame);
    out_.push_back({std::move(frame), 0});
  }
  bool has_output() const { return !out_.empty() || !raw_out_.empty(); }
  bool has_lent() const { return lending && lending->has_lent(); }
  void QueueRaw(std::string bytes) { raw_out_ += bytes; }
  // Drops frames that refer to memory.  False where one has left in part: the connection is of no
  // use any more.
  bool DropBodies();
  void Release(const void* data, size_t bytes);
  // Bytes of the handshake.
  Outcome ReadHandshake();

 private:
  struct Outgoing {
    Frame frame;
    size_t sent = 0;
  };

  bool Prepare(size_t* staged);
  bool IsBetweenFrames() const { return out_.empty() || out_.front().sent == 0; }
  Outcome SendFile();
  void GatherOutput(std::vector<iovec>* pieces) const;
  void Sent(size_t bytes);
  ssize_t Receive(std::vector<iovec>* pieces);
  size_t FillBlocks(const std::byte* data, size_t bytes);
  bool Parse(LinkHandler* handler);
  bool ParseRecord();
  void Land(LinkHandler* handler, size_t head_bytes, uint64_t body_bytes);
  void CheckLanded() const;

  std::string raw_out_;  // of the handshake, and records: between frames, before those that wait
  std::deque<Outgoing> out_;
  size_t prepared_ = 0;  // of them, the first, that can leave as they are
  std::vector<std::byte> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  std::vector<Block> blocks_;  // of the frame that is landing
  size_t block_ = 0, block_offset_ = 0;
  bool is_landing_ = false;
  uint32_t body_check_ = 0;  // that the landing frame should have; 0: none
};

}  // namespace tkv
