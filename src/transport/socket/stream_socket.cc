#include "transport/socket/stream_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <tuple>
#include <utility>

#include "transport/socket/peer.h"

namespace tkv {

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

void StreamSocket::Configure(bool is_unix) {
  if (!is_unix) {
    const int on = 1;
    setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  KeepFromChildren(socket_.native_handle());
  is_unix_ = is_unix;
}

void StreamSocket::StartTls(bool is_dialer, std::string key) {
  boost::system::error_code ignored;
  std::ignore = socket_.native_non_blocking(true, ignored);
  tls_.emplace(socket_.native_handle(), is_dialer, std::move(key));
}

Tls::Step StreamSocket::ShakeTls() {
  const Tls::Step step = tls_->Shake();
  is_encrypted_ = step == Tls::Step::kDone;
  return step;
}

ssize_t StreamSocket::Receive(std::vector<iovec>* pieces, AttachedFiles* files) {
  if (tls_) return tls_->Receive(*pieces);
  return ReceiveWithFiles(socket_.native_handle(), pieces, files);
}

ssize_t StreamSocket::ReceivePlain(void* data, size_t bytes) {
  return ::recv(socket_.native_handle(), data, bytes, MSG_DONTWAIT);
}

ssize_t StreamSocket::Send(std::vector<iovec>* pieces) {
  if (is_encrypted_ && !tls_->kernel_seals()) return tls_->Send(*pieces);
  msghdr message{};
  message.msg_iov = pieces->data();
  message.msg_iovlen = pieces->size();
  return ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void StreamSocket::AwaitRead(Reactor* reactor, uint64_t number) {
  if (is_reading_) return;
  reactor->AwaitRead(&socket_, number);
  is_reading_ = true;
}

void StreamSocket::AwaitWrite(Reactor* reactor, uint64_t number) {
  if (is_writing_) return;
  reactor->AwaitWrite(&socket_, number);
  is_writing_ = true;
}

void StreamSocket::EndOutput() { shutdown(socket_.native_handle(), SHUT_WR); }

void StreamSocket::End() { shutdown(socket_.native_handle(), SHUT_RDWR); }

bool StreamSocket::IsClosedByPeer(std::vector<std::byte>* scratch) {
  for (int i = 0; i < 4; ++i) {
    const ssize_t got = ReceivePlain(scratch->data(), scratch->size());
    if (got > 0) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    return has_ended_ = true;
  }
  return false;
}

void StreamSocket::ResetOnClose() {
  if (is_unix_) return;
  const linger at_once{1, 0};
  setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

void StreamSocket::Cancel() {
  boost::system::error_code ignored;
  std::ignore = socket_.cancel(ignored);
}

void StreamSocket::Close() {
  boost::system::error_code ignored;
  std::ignore = socket_.close(ignored);
}

}  // namespace tkv
