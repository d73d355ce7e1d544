// Addresses of processes, as text: alternatives separated by commas, the best first.
//
//   unix:HOST/NAME   an abstract Unix socket, for processes of the same host and network namespace
//   tcp:ADDRESS:PORT an address or name; IPv6 in brackets

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tkv {

// A single address of a process.
struct PeerAddress {
  enum class Kind : uint8_t { kUnix, kTcp };
  Kind kind = Kind::kTcp;
  std::string host;  // of a Unix socket: HostId()
  std::string name;  // of a Unix socket
  uint16_t port = 0;
};

// Parses addresses separated by commas.
//   throws  kInvalidArgument  malformed address; the message names it
std::vector<PeerAddress> ParseAddresses(const std::string& text);
std::string ToString(const PeerAddress& address);
// Returns the address of a port on a host.  The host is a name, an IPv4 address, or an IPv6 address
// with or without brackets.
//   throws  kInvalidArgument  it is none of these
PeerAddress TcpAddress(const std::string& host, uint16_t port);

// Returns an identifier of the host as seen by Unix sockets: the boot of the system and the network
// namespace.  Two processes can reach each other's Unix sockets exactly if theirs are equal.
std::string HostId();
// Returns a fresh name for the Unix socket of a job's head, for a job without a given address.  The
// name contains the job's name if that is short and plain enough.
std::string HeadSocketName(std::string_view job);
// Returns the job whose head listens at a Unix socket of that name; empty if the name does not
// contain a job.
std::string JobOfHeadSocket(std::string_view name);
// Prefix of the names that contain a job.
inline constexpr std::string_view kHeadSocket = "tkv-head-";
// An abstract Unix socket at which a process of this user listens.
struct OwnUnixSocket {
  std::string name;
  int pid = 0;  // of that process; 0: it is in another PID namespace
};
// Returns those sockets of this network namespace whose name has this prefix.
std::vector<OwnUnixSocket> OwnUnixSockets(std::string_view beginning);
// Returns the local address of this machine on the route to `host`; the loopback address if `host`
// is this machine.
//   throws  kUnavailable  no route to the host
std::string LocalAddressTowards(const std::string& host);

}  // namespace tkv
