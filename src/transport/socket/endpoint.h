// The transport between processes: TCP, and Unix sockets on one host.
//
// Bodies are received straight into the memory that the receiver names, and sent from where they
// lie.  Nothing of a peer is read before it has proved that it belongs to the job (handshake.h).

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/socket/budgets.h"
#include "transport/socket/handshake.h"
#include "transport/socket/resolver.h"
#include "transport/transport.h"

namespace tkv {

struct SocketOptions {
  std::string who = "process";  // "worker 2": how others name this process
  // Where it listens: "unix" an abstract socket of a fresh name, "tcp:HOST:PORT" (port 0: any that
  // is free; of a name's addresses the first that can be had).  Empty: it only dials.
  std::vector<std::string> listen;
  std::string token;              // the secret of the job; empty: only Unix sockets of one user
  bool insecure_network = false;  // TCP without a token
  uint32_t version = kProtocolVersion;
  bool check_bodies = false;  // what leaves by TCP carries a check of its bodies
  bool use_unix = true;       // where a peer can be reached by it
  // On one host large bodies travel through shared memory (lending.h): from the arena, if there is
  // one, and from those of others in any case.
  bool share_memory = true;
  std::shared_ptr<Arena> arena;
  // Told who has taken nothing of what waits for it, after 5 s, 10 s, 20 s, and so on.
  std::function<void(const std::string&)> stands;
  std::function<void(const std::string&)> warn;  // told once for each thing that cannot be done
  SocketBudgets budgets;
  LookUp look_up = LookUpBySystem;
};

//   blocks  until the system has looked up the names to listen at; nothing later blocks
//   throws  kInvalidArgument  an address that is none, or TCP without a token
//           kAlreadyExists    the port is taken
//           kUnavailable      what the system says
std::unique_ptr<Endpoint> OpenSockets(SocketOptions options);

}  // namespace tkv
