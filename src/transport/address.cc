#include "transport/address.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address_v6.hpp>
#include <boost/asio/ip/udp.hpp>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <optional>
#include <sstream>

#include "base/format.h"
#include "base/process.h"
#include "transport/factory.h"

namespace tkv {
namespace {

namespace asio = boost::asio;

PeerAddress ParseOne(const std::string& text) {
  PeerAddress address;
  if (text.starts_with("unix:")) {
    const size_t slash = text.find('/');
    if (slash != std::string::npos && slash + 1 < text.size() && text.size() - slash <= 100) {
      address.kind = PeerAddress::Kind::kUnix;
      address.host = text.substr(5, slash - 5);
      address.name = text.substr(slash + 1);
      return address;
    }
  } else if (text.starts_with("tcp:")) {
    const size_t colon = text.rfind(':');
    const bool bracketed = text.size() > 5 && text[4] == '[' && colon > 5 && text[colon - 1] == ']';
    address.host =
        bracketed ? text.substr(5, colon - 6) : text.substr(4, colon < 4 ? 0 : colon - 4);
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    const bool is_good = error == std::errc() && stop == end && !address.host.empty() &&
                         (bracketed || address.host.find(':') == std::string::npos);
    if (is_good) return address;
  }
  throw Fail(Code::kInvalidArgument,
             "address '{}': tcp:HOST:PORT (an IPv6 address in brackets: tcp:[::1]:7000) or "
             "unix:HOST/NAME is needed, alternatives with commas",
             text);
}

}  // namespace

std::vector<PeerAddress> ParseAddresses(const std::string& text) {
  std::vector<PeerAddress> addresses;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    addresses.push_back(ParseOne(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return addresses;
}

std::string ToString(const PeerAddress& address) {
  if (address.kind == PeerAddress::Kind::kUnix) {
    return Format("unix:{}/{}", address.host, address.name);
  }
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return is_v6 ? Format("tcp:[{}]:{}", address.host, address.port)
               : Format("tcp:{}:{}", address.host, address.port);
}

PeerAddress TcpAddress(const std::string& host, uint16_t port) {
  boost::system::error_code error;
  asio::ip::make_address_v6(host, error);
  const std::string shown = error ? host : Format("[{}]", host);
  const std::string text = Format("tcp:{}:{}", shown, port);
  ParseAddresses(text);  // a host with a comma would be two alternatives
  return ParseOne(text);
}

std::string HostId() {
  constexpr size_t kShown = 18;  // of its 36 characters
  const std::string boot = StartOf("/proc/sys/kernel/random/boot_id", kShown);
  struct stat space{};
  stat("/proc/self/ns/net", &space);
  return Format("{}.{}", boot, space.st_ino);
}

std::string LocalAddressTowards(const std::string& host) {
  try {
    asio::io_context context;
    asio::ip::udp::resolver resolver(context);
    asio::ip::udp::socket socket(context);
    const auto found = resolver.resolve(host, "9");  // nothing is sent there
    socket.connect(found.begin()->endpoint());
    return socket.local_endpoint().address().to_string();
  } catch (const boost::system::system_error& error) {
    throw Fail(Code::kUnavailable, "no way to {}: {}", host, error.code().message());
  }
}

namespace {

constexpr size_t kRandomBytes = 8;
constexpr size_t kJobBytesMax = 64;  // a name has 107 bytes at most

bool IsPlainName(std::string_view job) {
  return !job.empty() && job.size() <= kJobBytesMax &&
         std::ranges::all_of(job, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

}  // namespace

std::string HeadSocketName(std::string_view job) {
  const std::string fresh = RandomHex(kRandomBytes);
  return IsPlainName(job) ? Format("{}{}-{}", kHeadSocket, fresh, job) : Format("tkv-{}", fresh);
}

std::string JobOfHeadSocket(std::string_view name) {
  const size_t before = kHeadSocket.size() + 2 * kRandomBytes + 1;
  if (!name.starts_with(kHeadSocket) || name.size() <= before) return {};
  const std::string_view job = name.substr(before);
  return IsPlainName(job) ? std::string(job) : std::string();
}

namespace {

// Returns the PID of the process that listens at that abstract Unix socket, or nothing if it is not
// this user's.  Dials it, because the peer's user is known only after a connection.
std::optional<int> OwnListener(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) return std::nullopt;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file < 0) return std::nullopt;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  const bool is_own = connect(file, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                      getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
                      peer.uid == geteuid();
  close(file);
  if (!is_own) return std::nullopt;
  return static_cast<int>(peer.pid);
}

}  // namespace

// Each line of the file has a number, references, protocol, flags, type, state, inode, and a name.
// The name's first byte is 0 and shown as @.
std::vector<OwnUnixSocket> OwnUnixSockets(std::string_view beginning) {
  constexpr size_t kBytesMax = size_t{16} << 20;
  constexpr std::string_view kListening = "00010000";
  std::istringstream lines(StartOf("/proc/net/unix", kBytesMax));
  std::vector<OwnUnixSocket> sockets;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, references, protocol, flags, type, state, inode, name;
    words >> number >> references >> protocol >> flags >> type >> state >> inode >> name;
    if (flags != kListening || !name.starts_with('@')) continue;
    name.erase(0, 1);
    if (!name.starts_with(beginning)) continue;
    if (const std::optional<int> pid = OwnListener(name)) sockets.push_back({name, *pid});
  }
  return sockets;
}

}  // namespace tkv
