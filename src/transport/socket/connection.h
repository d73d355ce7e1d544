// A connection of the socket transport: first the handshake, then frames.

#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <optional>

#include "tkv/stats.h"
#include "transport/factory.h"
#include "transport/socket/connection_notes.h"
#include "transport/socket/frame_reader.h"
#include "transport/socket/frame_writer.h"
#include "transport/socket/handshake.h"
#include "transport/socket/lending.h"
#include "transport/socket/peer.h"
#include "transport/socket/reactor.h"
#include "transport/socket/stream_socket.h"

namespace tkv {

// A connection of an endpoint, in one of several stages.  The connection keeps its stage and its
// deadline; the endpoint asks for their changes.  The socket, the reader and the writer do the work.
class Connection {
 public:
  enum class Stage : uint8_t {
    kDialing,    // the socket is not connected yet
    kHandshake,  // both sides prove that they belong to the job
    kSecuring,   // the handshake of TLS
    kOpen,       // for frames
    kEnding,     // the peer has closed it, or it is starved: its loss is still to be reported
    kLingering,  // this side has closed it; the rest of the output still leaves
  };

  explicit Connection(boost::asio::io_context* context) : socket_(context) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // ---- names
  // The endpoint's own name for the connection, and for its events.  Set once, by the table of
  // connections.
  uint64_t number() const { return number_; }
  void SetNumber(uint64_t number) { number_ = number; }
  // The user's name for the connection; 0: it has none yet, or the user does not know it any more.
  uint64_t link() const { return link_; }
  void SetLink(uint64_t link) { link_ = link; }
  // The other side, as the dialer or the listener has found it.
  Peer& peer() { return peer_; }
  const Peer& peer() const { return peer_; }
  bool is_dialer() const { return peer_.dial.has_value(); }  // this side has dialed

  // ---- parts
  StreamSocket& socket() { return socket_; }
  FrameReader& reader() { return reader_; }
  const FrameReader& reader() const { return reader_; }
  FrameWriter& writer() { return writer_; }
  const FrameWriter& writer() const { return writer_; }
  ConnectionNotes& notes() { return notes_; }
  // Returns the bytes that the connection has carried.
  const TrafficStats& traffic() const { return traffic_; }

  // ---- stages
  Stage stage() const { return stage_; }
  // Begins the handshake on a connected socket.  Greet then queues the first bytes.  Checksums
  // follow the bodies of frames if `adds_body_checks`, except with TLS.
  void StartHandshake(bool is_unix, int64_t deadline);
  void Greet(HandshakeOptions options, bool adds_body_checks);
  // Reads and answers the handshake.  Returns false if the peer has closed the connection.
  bool ReadHandshake();
  const Handshake& handshake() const { return *handshake_; }
  // Begins TLS after the handshake, see StreamSocket.
  //   throws  kInternal
  void StartTls();
  // Opens the connection for frames.  A Unix socket lends large bodies if `shares_memory`.
  void Open(bool shares_memory, const EndpointOptions& options);
  bool shares_memory() const { return lending_.has_value(); }
  // Waits for the end of the peer's process, after the peer has closed the connection.
  void AwaitExit(int64_t deadline);
  // Ends a connection for which memory was lacking.  The peer sees the end after the bytes that the
  // kernel already has.
  void Starve(int64_t now);
  bool is_starved() const { return is_starved_; }
  // Waits until queued frames have left and the peer has closed its side, after a close of this
  // side.
  void Linger(int64_t deadline);
  // Makes the close of a connection to a peer that does not read immediate.
  void CloseAtOnce();
  // Ends the connection.  If the peer may still be reading lent memory, the peer has to close it.
  void Shut(bool waits_for_peer);

  // ---- deadlines
  void SetDeadline(int64_t deadline) { deadline_ = deadline; }  // 0: none
  bool IsLate(int64_t now) const { return deadline_ != 0 && deadline_ <= now; }
  bool has_deadline() const { return deadline_ != 0 || writer_.is_blocked(); }

  // ---- readiness of the socket: see StreamSocket
  void AwaitRead(Reactor* reactor) { socket_.AwaitRead(reactor, number_); }
  void AwaitWrite(Reactor* reactor) { socket_.AwaitWrite(reactor, number_); }

 private:
  void Leave(Stage next, int64_t deadline);

  uint64_t number_ = 0;
  uint64_t link_ = 0;
  Peer peer_;
  ConnectionNotes notes_;
  Stage stage_ = Stage::kDialing;
  int64_t deadline_ = 0;     // end of dialing, handshake, HELLO, WELCOME or lingering; 0: none
  bool is_starved_ = false;  // it ends, because there was no memory for it

  TrafficStats traffic_;
  StreamSocket socket_;
  std::optional<Handshake> handshake_;
  std::optional<Lending> lending_;  // on a Unix socket
  FrameWriter writer_{&socket_, &traffic_};
  FrameReader reader_{&socket_, &writer_, &traffic_};
};

}  // namespace tkv
