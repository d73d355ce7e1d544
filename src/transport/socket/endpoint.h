// The transport between processes: TCP, and Unix sockets on one host.
//
// Bodies are received directly into the memory that the receiver names, and sent directly from
// their memory.  Nothing from a peer is interpreted, apart from the handshake, before the peer has
// proved that it belongs to the job (handshake.h).

#pragma once

#include <memory>

#include "transport/socket/handshake.h"
#include "transport/socket/options.h"
#include "transport/transport.h"

namespace tkv {

// Opens the endpoint of a process and listens.
//   blocks  until the system has looked up the names at which to listen.  Names to dial are looked
//           up on another thread
//   throws  kInvalidArgument  malformed address, or TCP without a token
//           kAlreadyExists    the port is taken
//           kUnavailable      another error of the system
std::unique_ptr<Endpoint> OpenSockets(SocketOptions options);

}  // namespace tkv
