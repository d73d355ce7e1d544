// The transport between processes: TCP, and Unix sockets on one host.
//
// Bodies are received straight into the memory that the receiver names, and sent from where they
// lie.  Nothing of a peer is read before it has proved that it belongs to the job (handshake.h).

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

struct SocketOptions : EndpointOptions {
  // `listen`: "unix" an abstract socket of a fresh name, "tcp:HOST:PORT" (port 0: any that is free;
  // of a name's addresses the first that can be had).
  uint32_t version = kProtocolVersion;
  bool use_unix = true;  // where a peer can be reached by it
  // On one host large bodies travel through shared memory (lending.h): from the arena, if there is
  // one, and from those of others in any case.
  bool share_memory = true;
  SocketBudgets budgets;
  LookUp look_up = LookUpBySystem;
};

//   blocks  until the system has looked up the names to listen at; nothing later blocks
//   throws  kInvalidArgument  an address that is none, or TCP without a token
//           kAlreadyExists    the port is taken
//           kUnavailable      what the system says
std::unique_ptr<Endpoint> OpenSockets(SocketOptions options);

}  // namespace tkv
