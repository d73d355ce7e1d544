#include "transport/socket/peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <cstring>

namespace tkv {
namespace {

using boost::asio::generic::stream_protocol;

boost::asio::ip::address IpOf(const stream_protocol::endpoint& any) {
  boost::asio::ip::tcp::endpoint endpoint;
  if (any.size() > endpoint.capacity()) return {};
  endpoint.resize(any.size());
  std::memcpy(endpoint.data(), any.data(), any.size());
  return endpoint.address();
}

}  // namespace

std::string PeerHost(const stream_protocol::socket& socket) {
  boost::system::error_code error;
  const auto remote = socket.remote_endpoint(error);
  return error ? "nobody" : IpOf(remote).to_string();
}

bool IsWithinThisHost(const stream_protocol::socket& socket) {
  boost::system::error_code error;
  const auto local = IpOf(socket.local_endpoint(error));
  const auto remote = IpOf(socket.remote_endpoint(error));
  return !error && (remote.is_loopback() || remote == local);
}

bool IsOfThisUser(int socket, ProcessFile* process) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return false;
  if (credentials.uid != geteuid()) return false;
  *process = ProcessFile();
  if (credentials.pid > 0) *process = ProcessFile::Open(credentials.pid);  // 0: another container
  return true;
}

void KeepFromChildren(int file) { fcntl(file, F_SETFD, FD_CLOEXEC); }

}  // namespace tkv
