// A peer controlled byte by byte: a socket that sends the bytes that a test chooses, in the order
// of the test.

#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/frames.h"
#include "transport/address.h"
#include "transport/socket/handshake.h"
#include "transport/socket/lending.h"
#include "transport/socket/tls.h"

namespace tkv {

inline constexpr const char* kRawToken = "a token of this test";
inline constexpr int kSoonMilliseconds = 5000;  // the limit for everything that must happen

enum class Way : uint8_t { kUnix, kTcp, kTls };

class RawPeer {
 public:
  // Connects to one address of a list: the Unix socket, or the TCP address.
  RawPeer(const std::string& addresses, Way way) : way_(way) {
    for (const PeerAddress& one : ParseAddresses(addresses)) {
      if ((one.kind == PeerAddress::Kind::kUnix) == (way == Way::kUnix)) Connect(one);
    }
  }
  ~RawPeer() { Close(); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  void Close() {
    if (file_ >= 0) close(std::exchange(file_, -1));
  }
  // Sends as much as the socket accepts at once.  Returns the number of bytes.
  size_t Say(std::string_view bytes) {
    if (!tls_) return SayBare(bytes);
    if (tls_->has_output() && tls_->Flush() < 0) return 0;
    if (tls_->has_output()) return 0;
    const ssize_t said = tls_->Send({{const_cast<char*>(bytes.data()), bytes.size()}});
    tls_->Flush();
    return said < 0 ? 0 : static_cast<size_t>(said);
  }
  // Sends to the socket itself, without TLS.
  size_t SayBare(std::string_view bytes) {
    size_t said = 0;
    while (said < bytes.size()) {
      const ssize_t sent =
          send(file_, bytes.data() + said, bytes.size() - said, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) break;
      said += static_cast<size_t>(sent);
    }
    return said;
  }
  // Sends all bytes.  Returns false if the peer closes or the time is over.
  bool SayAll(std::string_view bytes) {
    const auto deadline = Soon();
    for (size_t said = 0; said < bytes.size();) {
      const size_t now = Say(bytes.substr(said));
      said += now;
      if (now == 0 && (!CanWrite() || std::chrono::steady_clock::now() > deadline)) return false;
    }
    return true;
  }
  // Sends the bytes with `count` file descriptors attached to the first one.
  void SayWithFiles(std::string_view bytes, size_t count) {
    std::vector<int> files(count, file_);
    std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
    iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const attached = CMSG_FIRSTHDR(&message);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(attached), files.data(), count * sizeof(int));
    sendmsg(file_, &message, MSG_NOSIGNAL);
  }
  // Returns true if the peer closes in time.  Reads and drops its output meanwhile.
  bool IsClosedSoon() {
    for (const auto deadline = Soon(); std::chrono::steady_clock::now() < deadline;) {
      if (!CanRead(50)) continue;
      char bytes[4096];
      if (HasEnded(bytes, sizeof(bytes))) return true;
    }
    return false;
  }
  // As IsClosedSoon, and sends another byte from time to time.
  bool IsClosedWhileSaying(std::string_view bytes) {
    for (const auto deadline = Soon(); std::chrono::steady_clock::now() < deadline;) {
      if (!bytes.empty()) {
        Say(bytes.substr(0, 1));
        bytes.remove_prefix(1);
      }
      char answer[4096];
      if (CanRead(5) && HasEnded(answer, sizeof(answer))) return true;
    }
    return false;
  }
  // Returns true if the peer closes in time.  Reads nothing.
  bool IsClosedUnread() {
    for (const auto deadline = Soon(); std::chrono::steady_clock::now() < deadline;) {
      pollfd file{file_, POLLRDHUP, 0};
      if (poll(&file, 1, 50) == 1 && (file.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
        return true;
      }
    }
    return false;
  }
  // Authenticates, and switches to TLS if this peer uses TLS.
  bool Shake() { return Prove() && (way_ != Way::kTls || Secure()); }
  bool Prove() {
    const bool by_tls = way_ == Way::kTls;
    Handshake handshake({"worker 0", kRawToken, false, kProtocolVersion, "there", by_tls, by_tls},
                        true);
    SayAll(handshake.TakeOutput());
    while (!handshake.done() && !handshake.failed()) {
      std::string bytes(handshake.wanted(), '\0');
      if (!ReadAll(&bytes)) return false;
      handshake.Receive(bytes);
      SayAll(handshake.TakeOutput());
    }
    if (handshake.done() && by_tls) key_ = handshake.TlsKey();
    return handshake.done();
  }
  // Returns the next message of the type.  Drops earlier messages.
  std::optional<Message> Hear(Type type) {
    for (;;) {
      std::string head(sizeof(uint32_t), '\0');
      if (!ReadAll(&head)) return std::nullopt;
      uint32_t magic = 0;
      std::memcpy(&magic, head.data(), sizeof(magic));
      const size_t fixed = magic == kLendMagic ? sizeof(LendRecord) : sizeof(FrameHeader);
      if (!ReadMore(&head, fixed)) return std::nullopt;
      if (magic == kLendMagic) continue;
      const FrameHeader header = DecodeHeader(std::as_bytes(std::span(head)), {});
      if (!ReadMore(&head, fixed + header.meta_bytes)) return std::nullopt;
      std::vector<Message> messages;
      DecodeMessages(header, std::as_bytes(std::span(head)), &messages);
      std::string bodies(header.body_bytes, '\0');
      if (!ReadAll(&bodies)) return std::nullopt;
      for (Message& message : messages) {
        if (message.type == type) return std::move(message);
      }
    }
  }

 private:
  static std::chrono::steady_clock::time_point Soon() {
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(kSoonMilliseconds);
  }
  void Connect(const PeerAddress& there) {
    if (there.kind == PeerAddress::Kind::kUnix) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, there.name.data(), there.name.size());
      file_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      connect(file_, reinterpret_cast<sockaddr*>(&address),
              static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + there.name.size()));
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(there.port);
      inet_pton(AF_INET, there.host.c_str(), &address.sin_addr);
      file_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      // A small window, so that a peer that does not read soon blocks the sender.
      const int bytes = 8192;
      setsockopt(file_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
      connect(file_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    }
  }
  bool Secure() {
    fcntl(file_, F_SETFL, O_NONBLOCK);
    auto tls = std::make_unique<Tls>(file_, true, key_);
    try {
      for (const auto deadline = Soon(); std::chrono::steady_clock::now() < deadline;) {
        const Tls::Step step = tls->Shake();
        if (step == Tls::Step::kReads) CanRead(50);
        if (step == Tls::Step::kWrites) CanWrite();
        if (step != Tls::Step::kDone) continue;
        tls_ = std::move(tls);
        return true;
      }
    } catch (const Error&) {  // it is closed
    }
    return false;
  }
  ssize_t Receive(char* bytes, size_t count) {
    return tls_ ? tls_->Receive({{bytes, count}}) : recv(file_, bytes, count, MSG_DONTWAIT);
  }
  // Reads once.  Returns true if the peer has closed.  Call it only if CanRead.
  bool HasEnded(char* bytes, size_t count) {
    const ssize_t got = Receive(bytes, count);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  bool CanRead(int milliseconds) const {
    if (tls_ && tls_->has_input()) return true;
    pollfd file{file_, POLLIN, 0};
    return poll(&file, 1, milliseconds) == 1;
  }
  bool CanWrite() const {
    pollfd file{file_, POLLOUT, 0};
    poll(&file, 1, 50);
    return (file.revents & (POLLHUP | POLLERR)) == 0;
  }
  bool ReadAll(std::string* bytes) {
    size_t got = 0;
    for (const auto deadline = Soon();
         got < bytes->size() && std::chrono::steady_clock::now() < deadline;) {
      if (!CanRead(50)) continue;
      const ssize_t part = Receive(bytes->data() + got, bytes->size() - got);
      if (part < 0 && errno == EAGAIN) continue;
      if (part <= 0) return false;
      got += static_cast<size_t>(part);
    }
    return got == bytes->size();
  }
  bool ReadMore(std::string* bytes, size_t whole) {
    std::string rest(whole - bytes->size(), '\0');
    if (!ReadAll(&rest)) return false;
    *bytes += rest;
    return true;
  }

  const Way way_;
  int file_ = -1;
  std::string key_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace tkv
