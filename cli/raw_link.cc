#include "raw_link.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "exit_status.h"
#include "system.h"
#include "tkv/error.h"
#include "tkv/job.h"

namespace tkv::cli {
namespace {

constexpr size_t kPart = size_t{1} << 20;  // of one system call; faster than all bytes at once
constexpr size_t kMessageBytesMax = size_t{1} << 30;
constexpr timeval kPatience{10, 0};
// Timeout of the echo's connection while other figures are measured.
constexpr timeval kIdle{120, 0};
constexpr int kCallersMax = 8;

class File {
 public:
  explicit File(int file) : file_(file) {
    if (file < 0) Die("bench: a socket");
  }
  ~File() {
    if (file_ >= 0) close(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  operator int() const { return file_; }  // NOLINT(google-explicit-constructor)
  int Release() { return std::exchange(file_, -1); }

 private:
  int file_;
};

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
  bool is_tcp() const { return bytes.ss_family != AF_UNIX; }
};

// Parses "unix:NAME" (an abstract socket, not a file) or "tcp:HOST:PORT".
//   throws  kInvalidArgument  no such form, no such host
Address Parse(const std::string& text) {
  Address address;
  const auto refuse = [&text](const std::string& why) {
    return Error(Code::kInvalidArgument, "bench: address '" + text + "': " + why);
  };
  if (text.starts_with("unix:")) {
    auto* const to = reinterpret_cast<sockaddr_un*>(&address.bytes);
    const std::string name = text.substr(5);
    if (name.size() >= sizeof(to->sun_path)) throw refuse("is too long");
    to->sun_family = AF_UNIX;
    std::memcpy(to->sun_path + 1, name.data(), name.size());
    address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
  }
  const size_t colon = text.rfind(':');
  if (!text.starts_with("tcp:") || colon < 4) throw refuse("unix:NAME or tcp:HOST:PORT is needed");
  std::string host = text.substr(4, colon - 4);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &found);
  if (error != 0) throw refuse(gai_strerror(error));
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

int Socket(const Address& address) {
  return socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

// The same address with the port that the system has chosen.
std::string WithPort(const std::string& text, int listener) {
  Address bound;
  bound.size = sizeof(bound.bytes);
  getsockname(listener, bound.get(), &bound.size);
  if (!bound.is_tcp()) return text;
  // The port has the same offset in IPv4 and IPv6 addresses.
  const int port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound.bytes)->sin_port);
  return text.substr(0, text.rfind(':') + 1) + std::to_string(port);
}

void Prepare(int file, bool is_tcp) {
  const int on = 1;
  if (is_tcp) setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
}

// Sends or receives all bytes.  Returns false if the peer closed or timed out.
bool Move(int file, char* data, size_t bytes, bool is_sent) {
  while (bytes > 0) {
    const size_t part = std::min(bytes, kPart);
    const ssize_t moved =
        is_sent ? send(file, data, part, MSG_NOSIGNAL) : recv(file, data, part, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    data += moved;
    bytes -= static_cast<size_t>(moved);
  }
  return true;
}
bool Send(int file, const void* data, size_t bytes) {
  return Move(file, static_cast<char*>(const_cast<void*>(data)), bytes, true);
}
bool Receive(int file, void* data, size_t bytes) {
  return Move(file, static_cast<char*>(data), bytes, false);
}

}  // namespace

int RawLink::Accept(int listener) const {
  int file = -1;
  do {
    file = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  } while (file < 0 && errno == EINTR);
  if (file >= 0) return file;
  if (errno != EAGAIN) Die("bench: a connection");
  throw Error(Code::kDeadlineExceeded, "bench: the process that sends back has not come in " +
                                           std::to_string(kPatience.tv_sec) +
                                           " s; it says: " + echo_->CloseAndRead());
}

RawLink::RawLink(const std::string& address, const OtherSide& side) {
  const Address wanted = Parse(address);
  const File listener(Socket(wanted));
  if (bind(listener, wanted.get(), wanted.size) != 0 || listen(listener, 8) != 0) {
    Die("bench: listening at " + address);
  }
  Prepare(listener, false);
  const std::string secret = NewToken();
  echo_ = side.Start({"echo", WithPort(address, listener), secret});
  for (int i = 0; i < kCallersMax; ++i) {  // until the peer that knows the secret connects
    File file(Accept(listener));
    Prepare(file, wanted.is_tcp());
    std::string said(secret.size(), '\0');
    if (!Receive(file, said.data(), said.size()) || said != secret) continue;
    file_ = file.Release();
    return;
  }
  throw Error(Code::kUnavailable, "bench: others connect to " + address + " all the time");
}

RawLink::~RawLink() {
  if (file_ >= 0) close(file_);
}

void RawLink::Exchange(const char* source, char* target, size_t bytes) const {
  const uint64_t size = bytes;
  if (Send(file_, &size, sizeof(size)) && Send(file_, source, bytes) &&
      Receive(file_, target, bytes)) {
    return;
  }
  throw Error(Code::kUnavailable, "bench: the process that sends back has gone, or stands still");
}

int RunEcho(const std::string& address, const std::string& secret) {
  const Address wanted = Parse(address);
  const File file(Socket(wanted));
  if (connect(file, wanted.get(), wanted.size) != 0) Die("bench: connecting to " + address);
  Prepare(file, wanted.is_tcp());
  std::vector<char> message;
  uint64_t size = 0;
  if (!Send(file, secret.data(), secret.size())) return kNotDone;
  setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &kIdle, sizeof(kIdle));
  while (Receive(file, &size, sizeof(size)) && size <= kMessageBytesMax) {
    message.resize(size);
    if (!Receive(file, message.data(), size) || !Send(file, message.data(), size)) break;
  }
  return kDone;
}

}  // namespace tkv::cli
