// The part of an endpoint that dials: it tries the addresses of a peer one after another.

#pragma once

#include <boost/system/error_code.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tkv/error.h"
#include "transport/address.h"
#include "transport/socket/connection.h"
#include "transport/socket/options.h"
#include "transport/socket/reactor.h"
#include "transport/socket/resolver.h"

namespace tkv {

// Dials for the connections of an endpoint.  Each function continues the dial of one connection and
// returns its state.  If memory is lacking, the function throws std::bad_alloc, and the connection
// has to end.
class Dialer {
 public:
  // The time that one dial may take, with all of its attempts.
  static constexpr int64_t kNanoseconds = 5'000'000'000;

  // The state of a dial.
  struct Result {
    enum class Kind : uint8_t { kWaits, kConnected, kFailed };
    Kind kind = Kind::kWaits;
    bool is_unix = false;        // kConnected: the kind of the socket
    std::optional<Error> error;  // kFailed
  };

  // The options and the reactor have to outlive the dialer.  `host` is HostId().
  Dialer(const SocketOptions* options, std::string host, Reactor* reactor);

  // Starts the dial of an address.
  //   throws  kInvalidArgument  malformed address
  Result Start(Connection* connection, const std::string& address);
  // Takes the result of the present attempt over TCP.
  Result Connected(Connection* connection, const boost::system::error_code& error);
  // Takes the addresses of the name that was looked up for this connection.
  Result Resolved(Connection* connection, const LookedUp& found);
  // Tries the next address.  `why` is the error of the dial if there is none.
  Result TryNext(Connection* connection, const Error& why);

  // Returns the answers to look-ups, once; Resolved takes them.
  std::vector<Resolver::Answer> TakeAnswers() { return resolver_.TakeAnswers(); }

 private:
  Result TryUnix(Connection* connection, const std::string& name);
  Result TryTcp(Connection* connection, const PeerAddress& address);
  bool IsWithinReach(const PeerAddress& address) const;

  const SocketOptions& options_;
  const std::string host_;
  Reactor* const reactor_;
  Resolver resolver_;
};

}  // namespace tkv
