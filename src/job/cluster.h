// The servers and the head of a job inside this process, each on its own thread.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "job/node_thread.h"
#include "tkv/kvstore.h"
#include "transport/inproc/network.h"

namespace tkv {

struct ClusterOptions {
  int workers = 1;
  int servers = 1;
  Epoch::Policy policy = Epoch::Policy::kFail;
  std::function<void(int level, const std::string& text)> log;
  // The folder for rows of tables whose memory is bounded.
  std::string rows_dir = {};
  // The silence after which a member counts as dead.
  std::chrono::milliseconds silence{5000};
};

class Cluster final {
 public:
  // Starts the head and the servers.
  //   throws  kInvalidArgument  fewer than one worker or server
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  InprocNetwork* network() { return &network_; }
  static std::string AddressOf(const Peer& peer);
  static constexpr const char* kJob = "inproc";
  // Ends a server as if its process had died.
  void KillServer(size_t index);
  // Ends the head.  Pushes and pulls continue, but no process can join any more.
  void KillHead() { head_.reset(); }

 private:
  InprocNetwork network_;
  std::vector<std::unique_ptr<BufferPool>> pools_;
  std::vector<std::unique_ptr<NodeThread>> servers_;
  std::unique_ptr<NodeThread> head_;
};

// Returns a new worker of the cluster, which keeps the cluster alive.
//   blocks, throws  as Worker
std::shared_ptr<class Worker> WorkerOf(const std::shared_ptr<Cluster>& cluster, Rank rank,
                                       const std::string& type, const StoreOptions& options);

// Returns a new observer of the cluster, which keeps the cluster alive.
//   blocks, throws  as Worker
std::shared_ptr<class Worker> ObserverOf(const std::shared_ptr<Cluster>& cluster,
                                         const StoreOptions& options);

// Returns the policy of a name; that of an empty one is `fail`.
//   throws  kInvalidArgument  neither fail, continue nor wait
Epoch::Policy PolicyFromName(const std::string& name);
const char* NameOf(Epoch::Policy policy);

}  // namespace tkv
