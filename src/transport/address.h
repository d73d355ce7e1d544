// Where a process can be reached, as text: alternatives with commas between them, the best first.
//
//   unix:HOST/NAME   an abstract Unix socket, for processes of the same host and network namespace
//   tcp:ADDRESS:PORT an address or name; IPv6 in brackets

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tkv {

struct PeerAddress {
  enum class Kind : uint8_t { kUnix, kTcp };
  Kind kind = Kind::kTcp;
  std::string host;  // of a Unix socket: HostId()
  std::string name;  // of a Unix socket
  uint16_t port = 0;
};

//   throws  kInvalidArgument  naming what is wrong
std::vector<PeerAddress> ParseAddresses(const std::string& text);
std::string ToString(const PeerAddress& address);
// Returns the address of a port of a host: a name, an IPv4 address, or an IPv6 address with brackets
// or without them.
//   throws  kInvalidArgument  it is none of these
PeerAddress TcpAddress(const std::string& host, uint16_t port);

// What is the same for all processes that can reach each other's Unix sockets, and for no others:
// the boot of the system and the network namespace.
std::string HostId();
// The name of a Unix socket at which the head of a job listens, where nobody has named another one: fresh,
// and it has the job in it, as far as it fits.
std::string HeadSocketName(std::string_view job);
// The job whose head listens at a Unix socket of that name; empty: there is none to be seen.
std::string JobOfHeadSocket(std::string_view name);
// What names of HeadSocketName begin with.
inline constexpr std::string_view kHeadSocket = "tkv-head-";
// Names of the abstract Unix sockets of this network namespace at which processes of this user listen, of those
// that begin so.
std::vector<std::string> OwnUnixSockets(std::string_view beginning);
// The address of this machine that faces `host`; the loopback's where it is this machine.
//   throws  kUnavailable  there is no way there
std::string LocalAddressTowards(const std::string& host);

}  // namespace tkv
