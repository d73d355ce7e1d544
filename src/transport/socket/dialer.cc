#include "transport/socket/dialer.h"

#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cerrno>
#include <tuple>
#include <utility>

#include "base/format.h"
#include "base/process.h"
#include "transport/socket/handshake.h"
#include "transport/socket/peer.h"

namespace tkv {
namespace {

namespace asio = boost::asio;

constexpr int64_t kAttemptNanoseconds = 2'000'000'000;  // for one address, if there is another

Dialer::Result Failed(const Error& error) { return {Dialer::Result::Kind::kFailed, false, error}; }

// Connects without blocking: a blocking connect would wait for a place in the queue of a listener
// that accepts nobody.
boost::system::error_code ConnectByUnix(Reactor::Socket* socket, const std::string& name) {
  const asio::local::stream_protocol::endpoint endpoint(std::string(1, '\0') + name);
  boost::system::error_code error;
  std::ignore = socket->open(asio::generic::stream_protocol(endpoint.protocol()), error);
  if (error) return error;
  std::ignore = socket->native_non_blocking(true, error);
  if (error) return error;
  const auto size = static_cast<socklen_t>(endpoint.size());
  if (connect(socket->native_handle(), endpoint.data(), size) == 0) return {};
  // EAGAIN: the listener's queue is full (unix(7)).
  if (errno == EAGAIN) return asio::error::connection_refused;
  return {errno, boost::system::system_category()};
}

// Returns the error of a dial over TCP without a token.  If an earlier alternative (a Unix socket)
// failed for the reason `why`, the peer may still be starting.  Otherwise another dial is pointless.
Error NeedsToken(const std::string& peer, bool may_come, const Error& why) {
  if (!may_come) {
    return Fail(Code::kUnauthenticated, "{}: TCP needs a token; {}", peer, kHowToMakeAToken);
  }
  return Fail(Code::kUnavailable,
              "{}: it has not started yet, or it is on another host, for which every process of "
              "the job needs a token ({}: {})",
              why.what(), peer, kHowToMakeAToken);
}

}  // namespace

Dialer::Dialer(const SocketOptions* options, std::string host, Reactor* reactor)
    : options_(*options),
      host_(std::move(host)),
      reactor_(reactor),
      resolver_(options->look_up, [reactor] { reactor->Interrupt(); }) {}

Dialer::Result Dialer::Start(Connection* connection, const std::string& address) {
  Peer& peer = connection->peer();
  peer.name = address;
  DialState& dial = peer.dial.emplace(address);
  for (const PeerAddress& one : ParseAddresses(address)) {
    if (IsWithinReach(one)) dial.alternatives.push_back(one);
  }
  return TryNext(connection, Fail(Code::kUnavailable, "{} {}", address,
                                  options_.use_unix ? "is on another host" : "is no TCP address"));
}

bool Dialer::IsWithinReach(const PeerAddress& address) const {
  return address.kind == PeerAddress::Kind::kTcp || (options_.use_unix && address.host == host_);
}

Dialer::Result Dialer::TryNext(Connection* connection, const Error& why) {
  DialState& dial = *connection->peer().dial;
  if (dial.alternatives.empty()) return Failed(why);
  const PeerAddress address = dial.alternatives.front();
  dial.alternatives.pop_front();
  connection->peer().name = ToString(address);
  const bool is_first = !std::exchange(dial.has_tried, true);
  ++dial.attempt;
  dial.attempt_deadline = SteadyNow() + kAttemptNanoseconds;
  if (connection->socket().system().is_open()) connection->socket().Close();
  if (address.kind == PeerAddress::Kind::kUnix) return TryUnix(connection, address.name);
  if (options_.token.empty() && !options_.insecure_network) {
    return Failed(NeedsToken(connection->peer().name, !is_first, why));
  }
  return TryTcp(connection, address);
}

Dialer::Result Dialer::TryUnix(Connection* connection, const std::string& name) {
  Peer& peer = connection->peer();
  StreamSocket::Socket& socket = connection->socket().system();
  peer.name = "this host";
  if (const auto error = ConnectByUnix(&socket, name)) return Connected(connection, error);
  if (!IsOfThisUser(socket.native_handle(), &peer.process)) {
    return TryNext(connection, Fail(Code::kUnauthenticated,
                                    "{}: the process there is of another user", peer.name));
  }
  return {Result::Kind::kConnected, true, std::nullopt};
}

Dialer::Result Dialer::TryTcp(Connection* connection, const PeerAddress& address) {
  DialState& dial = *connection->peer().dial;
  boost::system::error_code error;
  const asio::ip::address numeric = asio::ip::make_address(address.host, error);
  if (!error) {
    reactor_->Connect(&connection->socket().system(), {numeric, address.port}, connection->number(),
                      dial.attempt);
    return {};
  }
  dial.port = address.port;
  dial.attempt_deadline = 0;  // the lookup is bounded by the deadline of the whole dial
  resolver_.Ask(connection->number(), address.host);
  return {};
}

Dialer::Result Dialer::Connected(Connection* connection, const boost::system::error_code& error) {
  if (!error) return {Result::Kind::kConnected, false, std::nullopt};
  if (IsOutOfMeans(error)) {  // the next address would fail in the same way
    return Failed(Fail(Code::kResourceExhausted, "{}: no connection: {}", connection->peer().name,
                       SystemText(error)));
  }
  return TryNext(connection,
                 Fail(Code::kUnavailable, "{}: {}", connection->peer().name, error.message()));
}

// Dials the addresses of a name one after the other, before the peer's other alternatives.
Dialer::Result Dialer::Resolved(Connection* connection, const LookedUp& found) {
  DialState& dial = *connection->peer().dial;
  for (auto at = found.addresses.rbegin(); at != found.addresses.rend(); ++at) {
    dial.alternatives.push_front({PeerAddress::Kind::kTcp, *at, "", dial.port});
  }
  return TryNext(connection,
                 Fail(Code::kUnavailable, "{}: {}", connection->peer().name, found.error));
}

}  // namespace tkv
