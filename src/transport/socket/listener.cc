#include "transport/socket/listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstdlib>
#include <cstring>
#include <new>
#include <tuple>

#include "base/format.h"
#include "base/process.h"
#include "transport/socket/handshake.h"
#include "transport/socket/peer.h"

namespace tkv {
namespace {

namespace asio = boost::asio;

// When the process has no descriptors left.
constexpr int64_t kAcceptPauseNanoseconds = 100'000'000;
constexpr int kAcceptsPerTurn = 64;
// The memory that has to be free before a connection is accepted.  A member needs half of it.  The
// rest is for the connections that are there.
constexpr size_t kRoomBytes = size_t{256} << 10;

bool HasRoom() {
  void* const volatile room = std::malloc(kRoomBytes);  // volatile: not optimized away
  std::free(room);
  return room != nullptr;
}

// Closes the connections that wait to be accepted.  Takes no memory.  Returns true if there were
// some.
bool RefuseAll(int listening) {
  bool has_refused = false;
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const int file = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (file < 0) break;
    close(file);
    has_refused = true;
  }
  return has_refused;
}

uint16_t PortOf(const Reactor::Acceptor& socket) {
  const auto local = socket.local_endpoint();
  asio::ip::tcp::endpoint bound;
  bound.resize(local.size());
  std::memcpy(bound.data(), local.data(), local.size());
  return bound.port();
}

// Notes the name of the peer of an accepted connection.  Returns false if it is a process of
// another user.
bool Identify(Connection* connection, bool is_unix) {
  StreamSocket::Socket& socket = connection->socket().system();
  Peer& peer = connection->peer();
  peer.name = is_unix ? "this host" : PeerHost(socket);
  return !is_unix || IsOfThisUser(socket.native_handle(), &peer.process);
}

}  // namespace

void Listener::Listen(const std::string& where) {
  try {
    if (where == "unix") return ListenByUnix("tkv-" + RandomHex(12));
    if (where.starts_with("unix:")) return ListenByUnix(where.substr(5));
    const PeerAddress wanted = ParseAddresses(where).front();
    if (options_.token.empty() && !options_.insecure_network) {
      throw Fail(Code::kInvalidArgument, "listen at {}: TCP needs a token; {}", where,
                 kHowToMakeAToken);
    }
    ListenByTcp(wanted);
  } catch (const boost::system::system_error& error) {
    const bool is_taken = error.code() == asio::error::address_in_use;
    throw Fail(is_taken ? Code::kAlreadyExists : Code::kUnavailable, "listen at {}: {}", where,
               SystemText(error.code()));
  }
}

void Listener::ListenByUnix(const std::string& name) {
  Open(asio::local::stream_protocol::endpoint(std::string(1, '\0') + name), true);
  Publish(Format("unix:{}/{}", host_, name));
}

// Listens at the first usable address of a name.
void Listener::ListenByTcp(const PeerAddress& wanted) {
  const LookedUp found = options_.look_up(wanted.host);
  if (found.addresses.empty()) {
    throw Fail(Code::kUnavailable, "listen at {}: {}", ToString(wanted), found.error);
  }
  for (size_t i = 0; i < found.addresses.size(); ++i) {
    try {
      const uint16_t port = Open(
          asio::ip::tcp::endpoint(asio::ip::make_address(found.addresses[i]), wanted.port), false);
      return Publish(ToString({PeerAddress::Kind::kTcp, found.addresses[i], "", port}));
    } catch (const boost::system::system_error&) {
      if (i + 1 == found.addresses.size()) throw;
    }
  }
}

template <typename Endpoint>
uint16_t Listener::Open(const Endpoint& endpoint, bool is_unix) {
  Reactor::Acceptor socket(*reactor_->context());
  socket.open(asio::generic::stream_protocol(endpoint.protocol()));
  KeepFromChildren(socket.native_handle());
  if (!is_unix) socket.set_option(asio::socket_base::reuse_address(true));
  socket.bind(endpoint);
  socket.listen(1024);
  socket.non_blocking(true);
  const uint16_t port = is_unix ? 0 : PortOf(socket);
  acceptors_.push_back({std::move(socket), is_unix});
  reactor_->AwaitAccept(&acceptors_.back().socket, acceptors_.size() - 1);
  return port;
}

void Listener::Publish(const std::string& address) {
  if (!address_.empty()) address_ += ',';
  address_ += address;
}

void Listener::Accept(uint64_t place) {
  Acceptor& acceptor = acceptors_[place];
  try {
    if (const boost::system::error_code error = AcceptAll(&acceptor)) {
      return Pause(&acceptor, error);
    }
    reactor_->AwaitAccept(&acceptor.socket, place);
  } catch (const std::bad_alloc&) {
    Pause(&acceptor, asio::error::no_memory);
  }
}

// Accepts the waiting connections.  Returns the error for which accepting has to pause.  An error of
// one connection ends with that connection; a persistent one lasts for a whole turn.
boost::system::error_code Listener::AcceptAll(Acceptor* acceptor) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (!HasRoom()) {
      if (RefuseAll(acceptor->socket.native_handle())) {
        reports_->CannotAccept(asio::error::no_memory);
      }
      break;
    }
    const auto connection = std::make_shared<Connection>(reactor_->context());
    boost::system::error_code error;
    std::ignore = acceptor->socket.accept(connection->socket().system(), error);
    if (error == asio::error::would_block) break;
    if (IsOutOfMeans(error) || (error && i + 1 == kAcceptsPerTurn)) return error;
    if (error || !Identify(connection.get(), acceptor->is_unix)) continue;
    accepted_(connection, acceptor->is_unix);
  }
  return {};
}

void Listener::Pause(Acceptor* acceptor, const boost::system::error_code& error) {
  acceptor->paused_until = SteadyNow() + kAcceptPauseNanoseconds;
  reports_->CannotAccept(error);
}

bool Listener::is_paused() const {
  return std::ranges::any_of(acceptors_,
                             [](const Acceptor& acceptor) { return acceptor.paused_until != 0; });
}

void Listener::Resume(int64_t now) {
  for (size_t place = 0; place < acceptors_.size(); ++place) {
    Acceptor& acceptor = acceptors_[place];
    if (acceptor.paused_until == 0 || acceptor.paused_until > now) continue;
    acceptor.paused_until = 0;
    Accept(place);
  }
}

}  // namespace tkv
