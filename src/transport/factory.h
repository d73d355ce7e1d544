// How a process comes to its endpoint: transports by name, one of which carries a job.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/arena.h"
#include "transport/transport.h"

namespace tkv {

// Which connections are encrypted, of those that could leave the host and have a token.
enum class UseTls : uint8_t { kBetweenHosts, kAlways, kNever };

// What every transport is told of the process that it is for.
struct EndpointOptions {
  std::string who = "process";  // "worker 2": how others name this process
  // Where it listens, as Transport::ListenAt says or in a form of the transport's own.  Empty: it
  // only dials.
  std::vector<std::string> listen;
  std::string token;              // the secret of the job; empty: only processes of one user
  bool insecure_network = false;  // what leaves this host goes without a token
  UseTls tls = UseTls::kBetweenHosts;
  bool check_bodies = false;  // what leaves this host carries a check of its bodies
  // Memory that other processes of this host can read; null: there is none.
  std::shared_ptr<Arena> arena;
  // Told who has taken nothing of what waits for it, after 5 s, 10 s, 20 s, and so on.
  std::function<void(const std::string&)> stands;
  std::function<void(const std::string&)> warn;  // told once for each thing that cannot be done
};

// What a process is in a job, as far as it matters for where it listens.
struct ListenPlace {
  bool is_head = false;
  std::string job;              // its name
  std::string head;             // where the head is, or is to be; may be empty for the head itself
  bool may_leave_host = false;  // there is a token, or the user does without
};

// A way for the processes of a job to talk.  Immutable; any thread may use it.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  // Whether a process of this host can dial one of these addresses.
  //   throws  kInvalidArgument  an address that is none
  virtual bool CanReach(const std::string& addresses) const = 0;
  // Where a process listens so that all that are to reach it can.
  virtual std::vector<std::string> ListenAt(const ListenPlace& place) const = 0;
  // Where the head of a new job is to be, that is hosted by one of its workers.
  virtual std::string HeadAddress(const std::string& job) const = 0;
  // Whether bodies that lie in an arena are read there by other processes.
  virtual bool shares_memory() const = 0;
  //   throws  kInvalidArgument, kAlreadyExists, kUnavailable  why it cannot listen
  virtual std::unique_ptr<Endpoint> Open(EndpointOptions options) const = 0;
};

// Of the system's own random numbers, in hexadecimal digits.
std::string RandomHex(size_t bytes);

// Those of this build: "auto", "unix", "tcp".
const std::vector<const Transport*>& BuiltTransports();
//   throws  kInvalidArgument  there is none of that name
const Transport& BuiltTransport(std::string_view name);

}  // namespace tkv
