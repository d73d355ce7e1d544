// A job of processes, over any transport.

#pragma once

#include <memory>

#include "job/worker.h"
#include "tkv/job.h"
#include "transport/factory.h"

namespace tkv {

// Returns the transport that carries the job.
//   throws  kInvalidArgument  an unknown name
const Transport& TransportOf(const NetworkOptions& options);
// Returns the addresses at which this process listens, so that all its peers can reach it.
std::vector<std::string> ListenAddresses(const Job& job);

// Returns the options of an endpoint of the job.
//   throws  kInvalidArgument  an unknown transport
EndpointOptions EndpointOf(const Job& job, std::vector<std::string> listen,
                           const Service::Log& log);
// Opens an endpoint that also rehearses the failures of the job's failpoints.
//   throws  kInvalidArgument  a failpoint that cannot be read; and as Transport::Open
std::unique_ptr<Endpoint> OpenEndpoint(const Job& job, EndpointOptions options);
// Returns a function that gives the head's address for every peer, because EPOCHs name all others.
std::function<std::string(const Peer&)> AddressesOf(const Job& job);

// Starts a service, as Service::Start does.
//   first_patience  how long a server that has not joined yet waits for its head
std::unique_ptr<Service> StartService(const Job& job, const Service::Log& log,
                                      std::chrono::milliseconds patience,
                                      std::chrono::milliseconds first_patience);

// The servers, and perhaps the head, in the process of a worker.
class HostedServices {
 public:
  explicit HostedServices(std::vector<std::unique_ptr<Service>> services)
      : services_(std::move(services)) {}
  // Waits until every worker has left, because the others need these services until then.
  //   throws  kDeadlineExceeded, and what the interrupt throws
  void WaitUntilOver(std::chrono::milliseconds patience, const std::function<void()>& interrupt);

 private:
  std::vector<std::unique_ptr<Service>> services_;
};

// Returns a new worker that hosts a part of its job.
//   blocks, throws  as Worker
std::shared_ptr<Worker> WorkerByRendezvous(const std::string& type, const StoreOptions& options);

// Returns a new worker among the processes that an MPI launcher has started.  The worker hosts a
// part of the job.
std::shared_ptr<Worker> WorkerInGroup(const std::string& type, const StoreOptions& options);

// Returns this process's worker in the job.  All its stores share the worker while one of them is
// open.
//   blocks, throws  as Worker
//   throws  kFailedPrecondition  the process has been forked from that worker
std::shared_ptr<Worker> WorkerOfProcess(const std::string& type, const StoreOptions& options,
                                        Job job);

// Returns an observer of a job, from any process.
//   doing  begins the message of an error
//   blocks, throws  as Worker
std::shared_ptr<Worker> ObserverOf(const StoreOptions& options, Job job,
                                   const std::string& doing = "connect");

}  // namespace tkv
