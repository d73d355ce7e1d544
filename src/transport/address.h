// Where a process can be reached, as text: alternatives with commas between them, the best first.
//
//   unix:HOST/NAME   an abstract Unix socket, for processes of the same host and network namespace
//   tcp:ADDRESS:PORT an address or name; IPv6 in brackets

#pragma once

#include <cstdint>
#include <string>
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

// What is the same for all processes that can reach each other's Unix sockets, and for no others:
// the boot of the system and the network namespace.
std::string HostId();
// The address of this machine that faces `host`; the loopback's where it is this machine.
//   throws  kUnavailable  there is no way there
std::string LocalAddressTowards(const std::string& host);

}  // namespace tkv
