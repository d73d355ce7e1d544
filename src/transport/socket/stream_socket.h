// The socket of a connection: a stream of bytes, plain at first and later encrypted if both sides
// want TLS.  Never blocks.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/socket/file_passing.h"
#include "transport/socket/reactor.h"
#include "transport/socket/tls.h"

namespace tkv {

// Returns true if the last call on a socket has failed only for now: errno says that the kernel has
// no input, or takes no output.
bool WouldBlock();

// A socket of TCP or Unix, from its creation to its close.
class StreamSocket {
 public:
  using Socket = Reactor::Socket;

  explicit StreamSocket(boost::asio::io_context* context) : socket_(*context) {}
  StreamSocket(const StreamSocket&) = delete;
  StreamSocket& operator=(const StreamSocket&) = delete;

  // Returns the system's socket, for the code that accepts or dials.
  Socket& system() { return socket_; }
  // Sets the options of the connected socket.
  void Configure(bool is_unix);
  bool is_unix() const { return is_unix_; }

  // ---- TLS
  // Begins TLS.  ShakeTls continues its handshake, see Tls::Shake.  Bytes are encrypted when it is
  // done.
  //   throws  kInternal
  void StartTls(bool is_dialer, std::string key);
  Tls::Step ShakeTls();
  bool uses_tls() const { return tls_.has_value(); }

  // ---- bytes.  Each function returns a count, or -1 with the reason in errno.
  // Receives bytes into these pieces; 0: the peer has closed the connection.  See ReceiveWithFiles
  // for `files`.  With TLS none can accompany the bytes.
  //   throws  kDataLoss  see Tls::Receive
  ssize_t Receive(std::vector<iovec>* pieces, AttachedFiles* files);
  // Receives bytes of the handshake before TLS.
  ssize_t ReceivePlain(void* data, size_t bytes);
  // Returns true if TLS has kept received bytes, which the reactor may not report.
  bool has_input() const { return tls_ && tls_->has_input(); }
  // Sends bytes; call it only if has_output() is false.
  ssize_t Send(std::vector<iovec>* pieces);
  // Sends bytes before TLS, accompanied by a file.
  ssize_t SendFile(const void* data, size_t bytes, int file) {
    return SendWithFile(socket_.native_handle(), data, bytes, file);
  }
  // Returns true if encrypted bytes wait here.  Flush sends them.
  bool has_output() const { return tls_ && tls_->has_output(); }
  ssize_t Flush() { return tls_->Flush(); }

  // ---- readiness
  // Ask the reactor once to report that the socket is readable or writable.  `number` is the number
  // of the event.
  //   throws  std::bad_alloc
  void AwaitRead(Reactor* reactor, uint64_t number);
  void AwaitWrite(Reactor* reactor, uint64_t number);
  // Note that the reactor has reported it.
  void NoteReadable() { is_reading_ = false; }
  void NoteWritable() { is_writing_ = false; }

  // ---- the end
  // Tells the peer that no more bytes follow.
  void EndOutput();
  // Ends both directions: bytes of the peer that were not received are lost.
  void End();
  // Notes that the peer has closed the connection and reads nothing more.
  void NoteEnd() { has_ended_ = true; }
  bool has_ended() const { return has_ended_; }
  // Throws away input and returns true if the peer has closed the connection.  Bounded in each
  // call, because the peer may keep sending.
  bool IsClosedByPeer(std::vector<std::byte>* scratch);
  // Makes Close throw away bytes of TCP that have not left.  Otherwise the kernel would retry them
  // for minutes if the peer does not read.
  void ResetOnClose();
  // Ends the waits of the reactor for this socket.
  void Cancel();
  void Close();

 private:
  Socket socket_;
  bool is_unix_ = false;
  std::optional<Tls> tls_;
  bool is_encrypted_ = false;                     // the handshake of TLS is done
  bool is_reading_ = false, is_writing_ = false;  // the reactor has been asked to report readiness
  bool has_ended_ = false;                        // the peer has closed it and reads nothing more
};

}  // namespace tkv
