#include "transport/socket/transport.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/format.h"
#include "transport/address.h"
#include "transport/socket/endpoint.h"

namespace tkv {
namespace {

// Returns the IPv4 address in the first network that is up; the loopback address if there is none.
std::string AddressInANetwork() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const bool is_up = (one->ifa_flags & IFF_RUNNING) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_up || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    const auto* const address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) != nullptr) return text;
  }
  return "127.0.0.1";
}

// Returns the address of this machine that other machines are likely to reach: that of its default
// route.  The nodes of a cluster often have no default route; then the address in their own
// network.
std::string OwnAddress() {
  try {
    return LocalAddressTowards("192.0.2.1");  // no machine has it; nothing is sent (RFC 5737)
  } catch (const Error&) {
    return AddressInANetwork();
  }
}

}  // namespace

bool SocketTransport::CanReach(const std::string& addresses) const {
  const std::vector<PeerAddress> all = ParseAddresses(addresses);
  return std::any_of(all.begin(), all.end(), [&](const PeerAddress& one) {
    return one.kind == PeerAddress::Kind::kTcp || (uses_unix_ && one.host == HostId());
  });
}

std::vector<std::string> SocketTransport::ListenAt(const ListenPlace& place) const {
  std::vector<std::string> listen;
  if (uses_unix_ && !place.is_head) listen.emplace_back("unix");
  if (uses_unix_ && place.is_head && place.head.empty()) {
    listen.push_back("unix:" + HeadSocketName(place.job));
  }
  if (place.head.empty()) return listen;
  for (const PeerAddress& address : ParseAddresses(place.head)) {
    if (address.kind == PeerAddress::Kind::kUnix) {
      if (uses_unix_ && place.is_head) listen.push_back("unix:" + address.name);
    } else if (place.is_head) {
      // A head that also has a Unix socket may omit TCP.
      if (place.may_leave_host || listen.empty()) listen.push_back(ToString(address));
    } else if (place.may_leave_host) {
      listen.push_back(
          ToString({PeerAddress::Kind::kTcp, LocalAddressTowards(address.host), "", 0}));
    }
  }
  return listen;
}

std::string SocketTransport::HeadAddress(const std::string& job) const {
  return Format("unix:{}/{},tcp:{}:0", HostId(), HeadSocketName(job), OwnAddress());
}

std::unique_ptr<Endpoint> SocketTransport::Open(EndpointOptions options) const {
  SocketOptions sockets;
  static_cast<EndpointOptions&>(sockets) = std::move(options);
  sockets.use_unix = uses_unix_;
  sockets.share_memory = shares_memory_;
  return OpenSockets(std::move(sockets));
}

}  // namespace tkv
