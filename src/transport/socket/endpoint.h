// The transport between processes: TCP, and Unix sockets on one host.
//
// Bodies are received straight into the memory that the receiver names, and sent from where they
// lie.  Nothing of a peer is read before it has proved that it belongs to the job (handshake.h).

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/socket/handshake.h"
#include "transport/transport.h"

namespace tkv {

struct SocketOptions {
  std::string who = "process";  // "worker 2": how others name this process
  // Where it listens: "unix" an abstract socket of a fresh name, "tcp:HOST:PORT" (port 0: any that
  // is free).  Empty: it only dials.
  std::vector<std::string> listen;
  std::string token;              // the secret of the job; empty: only Unix sockets of one user
  bool insecure_network = false;  // TCP without a token
  uint32_t version = ProtocolVersion();
  bool check_bodies = false;  // what leaves by TCP carries a check of its bodies
  bool use_unix = true;       // where a peer can be reached by it
  // On one host large bodies travel through shared memory (lending.h): from the arena, if there is
  // one, and from those of others in any case.
  bool share_memory = true;
  std::shared_ptr<Arena> arena;
  std::function<void(const std::string&)> warn;   // told once for each thing that cannot be done
  int64_t handshake_nanoseconds = 2'000'000'000;  // until a peer has proved who it is
  size_t strangers_max = 256;  // peers that have not; the oldest is closed where there are more
};

class SocketEndpoint : public Endpoint {
 public:
  // What others dial to reach it; empty where it does not listen.
  virtual const std::string& address() const = 0;
};

//   throws  kInvalidArgument  an address that is none, or TCP without a token
//           kAlreadyExists    the port is taken
//           kUnavailable      what the system says
std::unique_ptr<SocketEndpoint> OpenSockets(SocketOptions options);

}  // namespace tkv
