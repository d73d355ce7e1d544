// Facts about the other side of a connected socket, as the system of this host knows them.

#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <optional>
#include <string>

#include "transport/socket/dial_state.h"
#include "transport/socket/process_watch.h"

namespace tkv {

// The other side of a connection.
struct Peer {
  std::string name;               // its address, or "this host"; for errors
  ProcessFile process;            // if it is a process of this host
  std::optional<DialState> dial;  // if this side has dialed it
};

// Returns the IP address of the peer of a TCP socket, "nobody" if it has none.
std::string PeerHost(const boost::asio::generic::stream_protocol::socket& socket);
// Returns true if both ends of a TCP connection are on this machine.
bool IsWithinThisHost(const boost::asio::generic::stream_protocol::socket& socket);
// Returns true if the peer of a Unix socket is a process of this user.  `process` then becomes that
// process, or stays empty if it is in another container.
bool IsOfThisUser(int socket, ProcessFile* process);
// Makes the system close a descriptor in programs that children execute, so that none holds the
// connection open after this process has ended.
void KeepFromChildren(int file);

}  // namespace tkv
