#include "transport/socket/transport.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "transport/address.h"
#include "transport/socket/endpoint.h"

namespace tkv {
namespace {

// The address of this machine that faces the others, as far as it can know: that of its default
// route.
std::string OwnAddress() {
  try {
    return LocalAddressTowards("192.0.2.1");  // of no machine; nothing is sent (RFC 5737)
  } catch (const Error&) {
    return "127.0.0.1";
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
      // A head that has a Unix socket as well may do without TCP.
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
