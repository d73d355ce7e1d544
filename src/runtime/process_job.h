// A job of processes, over any transport.

#pragma once

#include <memory>

#include "runtime/worker.h"
#include "tkv/job.h"
#include "transport/factory.h"

namespace tkv {

// The transport that carries the job.
//   throws  kInvalidArgument  an unknown name
const Transport& TransportOf(const NetworkOptions& options);
// Where this process listens, so that all that are to reach it can.
std::vector<std::string> ListenAddresses(const Job& job);

//   throws  kInvalidArgument  an unknown transport
EndpointOptions EndpointOf(const Job& job, std::vector<std::string> listen,
                           const Service::Log& log);
// With the failures that the job rehearses.
//   throws  kInvalidArgument  a failpoint that cannot be read; and as Transport::Open
std::unique_ptr<Endpoint> OpenEndpoint(const Job& job, EndpointOptions options);
// Where a peer of the job is that no EPOCH names: the head.
std::function<std::string(const Peer&)> AddressesOf(const Job& job);

// As Service::Start.
//   first_patience  how long a server waits for its head until it has joined
std::unique_ptr<Service> StartService(const Job& job, const Service::Log& log,
                                      std::chrono::milliseconds patience,
                                      std::chrono::milliseconds first_patience);

// Servers and perhaps the head in the process of a worker.
class HostedServices {
 public:
  explicit HostedServices(std::vector<std::unique_ptr<Service>> services)
      : services_(std::move(services)) {}
  // Others need them until every worker has left.
  //   throws  kDeadlineExceeded, and what the interrupt throws
  void WaitUntilOver(std::chrono::milliseconds patience, const std::function<void()>& interrupt);

 private:
  std::vector<std::unique_ptr<Service>> services_;
};

// A worker that hosts a part of its job.
//   blocks, throws  as Worker
std::shared_ptr<Worker> WorkerByRendezvous(const std::string& type, const StoreOptions& options);

// The same among the processes that an MPI launcher has started.
std::shared_ptr<Worker> WorkerInGroup(const std::string& type, const StoreOptions& options);

// The worker of this process in the job, which all its stores share while one of them is open.
//   blocks, throws  as Worker
//   throws  kFailedPrecondition  the process has been forked from that worker
std::shared_ptr<Worker> WorkerOfProcess(const std::string& type, const StoreOptions& options,
                                        Job job);

// An observer of a job, from any process.
//   doing  begins the message of an error
//   blocks, throws  as Worker
std::shared_ptr<Worker> ObserverOf(const StoreOptions& options, Job job,
                                   const std::string& doing = "connect");

}  // namespace tkv
