// The transport between processes: TCP, and Unix sockets on one host.
//
// Bodies are received directly into the memory that the receiver names, and sent directly from
// their memory.  Nothing from a peer is interpreted, apart from the handshake, before the peer has
// proved that it belongs to the job (handshake.h).

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/factory.h"
#include "transport/socket/budgets.h"
#include "transport/socket/handshake.h"
#include "transport/socket/resolver.h"

namespace tkv {

// The options of an endpoint of sockets.
struct SocketOptions : EndpointOptions {
  // Forms of `listen`: "unix" is an abstract socket with a fresh name.  "tcp:HOST:PORT" is a TCP
  // port; port 0 is any free one.  If HOST is a name, its first usable address is taken.
  uint32_t version = kProtocolVersion;
  bool use_unix = true;  // prefer Unix sockets to peers of this host
  // Send large bodies through shared memory on one host (lending.h).  This process lends from its
  // arena, if it has one, and reads from those of others in any case.
  bool share_memory = true;
  SocketBudgets budgets;
  LookUp look_up = LookUpBySystem;
};

// Opens the endpoint of a process and listens.
//   blocks  until the system has looked up the names at which to listen; nothing blocks later
//   throws  kInvalidArgument  malformed address, or TCP without a token
//           kAlreadyExists    the port is taken
//           kUnavailable      another error of the system
std::unique_ptr<Endpoint> OpenSockets(SocketOptions options);

}  // namespace tkv
