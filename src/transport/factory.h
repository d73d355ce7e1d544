// Transports by name, from which a process gets its endpoint.  A job uses one of them.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/arena.h"
#include "transport/transport.h"

namespace tkv {

// Selects the connections that are encrypted, among TCP connections of a job with a token.
enum class UseTls : uint8_t { kBetweenHosts, kAlways, kNever };

// The options of an endpoint that are common to all transports.
struct EndpointOptions {
  std::string who = "process";  // the name of this process in others' messages, such as "worker 2"
  // The places where it listens: those from Transport::ListenAt, or a form of the transport's own.
  // Empty: it only dials.
  std::vector<std::string> listen;
  std::string token;              // the secret of the job; empty: only processes of one user
  bool insecure_network = false;  // connections to other hosts need no token
  UseTls tls = UseTls::kBetweenHosts;
  bool check_bodies = false;  // bodies that leave this host are followed by a checksum
  // Memory that other processes of this host can read; null: there is none.
  std::shared_ptr<Arena> arena;
  // Called with a message about a peer that does not read its waiting data, after 5 s, 10 s, 20 s,
  // and so on.  Also called with failures to accept connections, at growing intervals.
  std::function<void(const std::string&)> stands;
  // Called once for each warning, such as missing shared memory.
  std::function<void(const std::string&)> warn;
};

// The role of a process in its job, as far as it decides where the process listens.
struct ListenPlace {
  bool is_head = false;
  std::string job;  // its name
  // The coordinator's address (`head`), present or planned; the head itself may have none.
  std::string head;
  bool may_leave_host = false;  // the job has a token, or its user allows TCP without one
};

// A way for the processes of a job to communicate.  Immutable; any thread may use it.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  // Returns true if a process of this host can dial at least one of these addresses.
  //   throws  kInvalidArgument  malformed address
  virtual bool CanReach(const std::string& addresses) const = 0;
  // Returns the places where a process has to listen so that every peer can reach it.
  virtual std::vector<std::string> ListenAt(const ListenPlace& place) const = 0;
  // Returns the address of the head of a new job, if one of the job's workers hosts the head.
  virtual std::string HeadAddress(const std::string& job) const = 0;
  // Returns true if other processes can read bodies directly from this process's arena.
  virtual bool shares_memory() const = 0;
  // Opens an endpoint.
  //   throws  kInvalidArgument, kAlreadyExists, kUnavailable  the reason why it cannot listen
  virtual std::unique_ptr<Endpoint> Open(EndpointOptions options) const = 0;
};

// Returns random bytes of the system, as hexadecimal digits.
std::string RandomHex(size_t bytes);

// Returns the transports of this build: "auto", "unix", "tcp".
const std::vector<const Transport*>& BuiltTransports();
// Returns the transport of that name.
//   throws  kInvalidArgument  no transport has that name
const Transport& BuiltTransport(std::string_view name);

}  // namespace tkv
