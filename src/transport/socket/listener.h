// The part of an endpoint that listens for connections and accepts them.

#pragma once

#include <boost/system/error_code.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "transport/address.h"
#include "transport/socket/connection.h"
#include "transport/socket/options.h"
#include "transport/socket/reactor.h"
#include "transport/socket/reports.h"

namespace tkv {

// Listens at several places.  If the system or the memory allows no more connections, accepting at
// a place pauses for a while, and the lack is reported.
class Listener {
 public:
  // Takes over a connection that was accepted, over a Unix socket or TCP.
  //   throws  std::bad_alloc; accepting then pauses
  using Accepted = std::function<void(const std::shared_ptr<Connection>&, bool is_unix)>;

  // The options, the reactor and the reports have to outlive the listener.  `host` is HostId().
  Listener(const SocketOptions* options, std::string host, Reactor* reactor, Reports* reports,
           Accepted accepted)
      : options_(*options),
        host_(std::move(host)),
        reactor_(reactor),
        reports_(reports),
        accepted_(std::move(accepted)) {}

  // Listens at one more place: see SocketOptions::listen.
  //   blocks  until the system has looked up the name
  //   throws  kInvalidArgument, kAlreadyExists, kUnavailable: see OpenSockets
  void Listen(const std::string& where);
  // Returns the address at which other processes dial; empty if the endpoint does not listen.
  const std::string& address() const { return address_; }

  // Accepts the connections that wait at a place, of which the reactor has reported an event.
  void Accept(uint64_t place);
  // Returns true if accepting pauses at some place.
  bool is_paused() const;
  // Accepts at the places whose pause is over.
  void Resume(int64_t now);

 private:
  struct Acceptor {
    Reactor::Acceptor socket;
    bool is_unix;
    int64_t paused_until = 0;
  };

  void ListenByUnix(const std::string& name);
  void ListenByTcp(const PeerAddress& wanted);
  template <typename Endpoint>
  uint16_t Open(const Endpoint& endpoint, bool is_unix);
  void Publish(const std::string& address);
  boost::system::error_code AcceptAll(Acceptor* acceptor);
  void Pause(Acceptor* acceptor, const boost::system::error_code& error);

  const SocketOptions& options_;
  const std::string host_;
  Reactor* const reactor_;
  Reports* const reports_;
  const Accepted accepted_;
  std::string address_;
  std::deque<Acceptor> acceptors_;  // by place
};

}  // namespace tkv
