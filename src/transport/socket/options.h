// The options of an endpoint of sockets.

#pragma once

#include <cstdint>

#include "transport/factory.h"
#include "transport/socket/budgets.h"
#include "transport/socket/resolver.h"
#include "wire/version.h"

namespace tkv {

// Options beyond those of all transports.  The option `listen` has two forms: "unix" is an
// abstract socket with a fresh name.  "tcp:HOST:PORT" is a TCP port; port 0 is any free one.  If
// HOST is a name, its first usable address is taken.
struct SocketOptions : EndpointOptions {
  uint32_t version = kProtocolVersion;
  bool use_unix = true;  // prefer Unix sockets to peers of this host
  // Send large bodies through shared memory on one host (lending.h).  This process lends from its
  // arena, if it has one, and reads from those of others in any case.
  bool share_memory = true;
  SocketBudgets budgets;
  LookUp look_up = LookUpBySystem;
};

}  // namespace tkv
