// The servers and the head of a job inside this process, each on its own thread.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/node_thread.h"
#include "tkv/kvstore.h"
#include "transport/inproc/network.h"

namespace tkv {

struct ClusterOptions {
  int workers = 1;
  int servers = 1;
  Epoch::Policy policy = Epoch::Policy::kFail;
  std::function<void(int level, const std::string& text)> log;
  std::string rows_dir = {};                // for rows of keys whose memory is bounded
  std::chrono::milliseconds silence{5000};  // after which a member counts as dead
};

class Cluster final {
 public:
  //   throws  kInvalidArgument  fewer than one worker or server
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  InprocNetwork* network() { return &network_; }
  static std::string AddressOf(const Peer& peer);
  static constexpr const char* kJob = "inproc";
  // Ends a server, as if its process had died.
  void KillServer(size_t index);
  // Ends the head: data goes on, nobody joins any more.
  void KillHead() { head_.reset(); }

 private:
  InprocNetwork network_;
  std::vector<std::unique_ptr<BufferPool>> pools_;
  std::vector<std::unique_ptr<NodeThread>> servers_;
  std::unique_ptr<NodeThread> head_;
};

// A worker of the cluster, which it keeps alive.
//   blocks, throws  as Worker
std::shared_ptr<class Worker> WorkerOf(const std::shared_ptr<Cluster>& cluster, Rank rank,
                                       const std::string& type, const StoreOptions& options);

// An observer of the cluster, which it keeps alive.
//   blocks, throws  as Worker
std::shared_ptr<class Worker> ObserverOf(const std::shared_ptr<Cluster>& cluster,
                                         const StoreOptions& options);

// Empty: fail.
//   throws  kInvalidArgument  neither fail, continue nor wait
Epoch::Policy PolicyFromName(const std::string& name);
const char* NameOf(Epoch::Policy policy);

}  // namespace tkv
