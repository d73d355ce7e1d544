// A connection of the socket transport: first the handshake, then frames.  Reads into the memory
// that the receiver names, writes from the memory of the bodies; never blocks.

#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/socket/dial_state.h"
#include "transport/socket/handshake.h"
#include "transport/socket/landing.h"
#include "transport/socket/lending.h"
#include "transport/socket/output_queue.h"
#include "transport/socket/process_watch.h"
#include "transport/socket/reactor.h"
#include "transport/socket/tls.h"
#include "transport/transport.h"
#include "wire/frame_layout.h"

namespace tkv {

// A connection of an endpoint, in one of several stages.  The connection keeps its stage and its
// deadline; the endpoint asks for their changes.
class Connection {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  enum class Stage : uint8_t { kDialing, kHandshake, kSecuring, kOpen, kEnding, kLingering };
  // The result of an attempt to read or write.
  //   kMore     reading: its turn is over, or it has closed the connection; writing: all has left
  //   kBlocked  the kernel has no input, or takes no output
  //   kOver     the connection has ended
  //   kPaused   writing: its turn is over; call again
  //   kWaiting  writing: nothing can leave until the peer gives shared memory back
  enum class Outcome : uint8_t { kMore, kBlocked, kOver, kPaused, kWaiting };

  explicit Connection(boost::asio::io_context* context) : socket(*context) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The stage of trust of the peer; each kind has a budget of its own (budgets.h).
  enum class Standing : uint8_t { kNone, kUnixStranger, kTcpStranger, kGuest, kMember };

  uint64_t number = 0;                  // the endpoint's own name for the connection
  uint64_t link = 0;                    // the user's name for it; 0: not accepted yet
  Standing standing = Standing::kNone;  // changed by Admission
  Socket socket;
  ProcessFile process;            // the peer, if it is a process of this host
  std::string peer;               // address of the other side, for errors
  std::optional<DialState> dial;  // if this side has dialed
  bool is_welcome = false;        // the handler knows the peer, or this side dialed it
  bool has_more_time = false;     // the deadline for WELCOME is set
  int64_t next_stand = 0;  // nanoseconds of waiting output until its next report; 0: no report yet

  bool is_dialer() const { return dial.has_value(); }
  bool has_said_hello() const { return has_said_hello_; }  // a whole frame has arrived

  // ---- stages
  Stage stage() const { return stage_; }
  // Begins the handshake on a connected socket.  Greet then sends the first bytes.
  void StartHandshake(bool is_unix, int64_t deadline);
  void Greet(HandshakeOptions options, bool adds_body_checks);
  const Handshake& handshake() const { return *handshake_; }
  // Begins TLS after the handshake.  ShakeTls continues it, see Tls::Shake.
  //   throws  kInternal
  void StartTls();
  bool uses_tls() const { return tls_.has_value(); }
  Tls::Step ShakeTls() { return tls_->Shake(); }
  // Opens the connection for frames.  A Unix socket lends large bodies if `shares_memory`.
  void Open(bool shares_memory, const EndpointOptions& options);
  // Waits for the end of the peer's process, after the peer has closed the connection.
  void AwaitExit(int64_t deadline);
  // Ends a connection for which memory was lacking.  The peer sees the end after the bytes that the
  // kernel already has.
  void Starve(int64_t now);
  bool is_starved() const { return is_starved_; }
  // Waits until queued frames have left and the peer has closed its side, after a close of this
  // side.
  void Linger(int64_t deadline);
  // Ends the connection.  If the peer may still be reading lent memory, the peer has to close it.
  void Shut(bool waits_for_peer);

  // ---- deadlines
  void SetDeadline(int64_t deadline) { deadline_ = deadline; }  // 0: none
  bool IsLate(int64_t now) const { return deadline_ != 0 && deadline_ <= now; }
  bool has_deadline() const { return deadline_ != 0 || is_blocked(); }
  // Returns true if output waits and the peer takes none of it.  BlockedFor returns for how long,
  // in nanoseconds; 0 if it takes some.
  bool is_blocked() const { return blocked_since_ != 0; }
  int64_t BlockedFor(int64_t now) const { return is_blocked() ? now - blocked_since_ : 0; }

  // ---- readiness of the socket
  // Ask the reactor once to report that the socket is readable or writable.
  //   throws  std::bad_alloc
  void AwaitRead(Reactor* reactor);
  void AwaitWrite(Reactor* reactor);
  // Note that the reactor has reported it.
  void NoteReadable() { is_reading_ = false; }
  void NoteWritable() { is_writing_ = false; }

  // ---- the end of the socket
  // Notes that the peer has closed the connection and reads nothing more.
  void NoteEnd() { has_ended_ = true; }
  bool has_ended() const { return has_ended_; }
  // Throws away input and returns true if the peer has closed the connection.  Bounded in each
  // call, because the peer may keep sending.
  bool IsClosedByPeer(std::vector<std::byte>* scratch);
  // Makes the close of a connection to a peer that does not read immediate.  Otherwise the kernel
  // would retry unsent bytes for minutes.
  void CloseAtOnce();

  // Reads the available bytes and hands whole frames to the handler.  Returns kMore after about
  // `bytes_max` bytes, received and lent ones.
  //   throws  the fault in the peer's bytes
  Outcome Read(LinkHandler* handler, std::vector<std::byte>* scratch, size_t bytes_max);
  Outcome Write();
  // Writes the waiting output, and notes whether the peer takes it.  Any error ends the connection,
  // even an error of this machine alone (no memory, a firewall rule): the connection cannot write
  // any more, and a read of what has arrived reports the end.
  //   returns  kBlocked, kPaused: more can leave when the socket is writable
  //            kOver: it has just become unable to write
  Outcome WriteOn();
  // A write has failed.
  bool cannot_write() const { return cannot_write_; }
  void Queue(Frame frame);
  bool has_output() const { return !out_.is_empty() || (tls_ && tls_->has_output()); }
  bool has_lent() const { return lending_ && lending_->has_lent(); }
  bool shares_memory() const { return lending_.has_value(); }
  // Returns the bytes of heads and records that wait for the peer.  The bytes of bodies are the
  // lent ones and, if more than one frame is queued, the queued ones.
  size_t waiting_head_bytes() const { return out_.head_bytes(); }
  size_t waiting_body_bytes() const;
  const TrafficStats& traffic() const { return traffic_; }
  // See OutputQueue.
  bool DropBodies() { return out_.DropBodies(); }
  void ReleaseSource(const void* data, size_t bytes) { out_.ReleaseSource(data, bytes); }
  void ReleaseTarget(const void* data, size_t bytes) { landing_.ReleaseTarget(data, bytes); }
  // Reads and answers the handshake.
  Outcome ReadHandshake();

 private:
  void StopWriting();
  void NoteTaking(Outcome outcome);
  void MakeInputBuffer();
  bool Prepare(size_t* staged);
  Outcome SendFile();
  ssize_t Give(std::vector<iovec>* pieces);
  void Sent(size_t bytes);
  void TakeFiles(msghdr* message);
  ssize_t Receive(std::vector<iovec>* pieces);
  void MoveInputToFront();
  void MakeInputRoom();
  bool Parse(LinkHandler* handler);
  bool ParseRecord();
  bool ParseHead(LinkHandler* handler);
  bool ParseBodies(LinkHandler* handler);
  void Land(LinkHandler* handler, const FrameHeader& header);
  bool TakeCheck();

  Stage stage_ = Stage::kDialing;
  int64_t deadline_ = 0;  // end of dialing, handshake, HELLO, WELCOME or lingering; 0: none
  // Since when the peer has taken none of the waiting output; 0: it takes.
  int64_t blocked_since_ = 0;
  bool is_unix_ = false;
  bool adds_body_checks_ = false;
  bool has_ended_ = false;                        // the peer has closed it and reads nothing more
  bool is_starved_ = false;                       // it ends, because there was no memory for it
  bool cannot_write_ = false;                     // a write has failed
  bool has_said_hello_ = false;                   // a whole frame has arrived
  bool is_reading_ = false, is_writing_ = false;  // the reactor has been asked to report readiness
  std::optional<Handshake> handshake_;
  std::optional<Tls> tls_;          // from Stage::kSecuring on
  std::optional<Lending> lending_;  // on a Unix socket

  OutputQueue out_;
  uint64_t taken_ = 0;  // grows whenever the peer takes bytes or gives lent memory back
  uint64_t taken_when_noted_ = 0;
  TrafficStats traffic_;
  std::vector<std::byte> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  Landing landing_;
};

}  // namespace tkv
