// Sockets as a transport of a job: by TCP, and on one host by Unix sockets.

#pragma once

#include <string>

#include "transport/factory.h"

namespace tkv {

class SocketTransport final : public Transport {
 public:
  SocketTransport(std::string name, bool uses_unix, bool shares_memory)
      : name_(std::move(name)), uses_unix_(uses_unix), shares_memory_(shares_memory) {}

  std::string_view name() const override { return name_; }
  bool CanReach(const std::string& addresses) const override;
  // Returns a Unix socket, and TCP at the local address that faces the head if the job may leave
  // its host.
  std::vector<std::string> ListenAt(const ListenPlace& place) const override;
  std::string HeadAddress(const std::string& job) const override;
  bool shares_memory() const override { return shares_memory_; }
  std::unique_ptr<Endpoint> Open(EndpointOptions options) const override;

 private:
  const std::string name_;
  const bool uses_unix_, shares_memory_;
};

}  // namespace tkv
