#include "tkv/testing.h"

#include "base/format.h"
#include "dist/observer_store.h"
#include "job/cluster.h"
#include "tkv/config.h"

namespace tkv::testing {

struct Cluster::State {
  ClusterOptions options;
  std::shared_ptr<tkv::Cluster> cluster;
};

Cluster::Cluster(const ClusterOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->options.store = CheckedOptions(options.store);
  tkv::ClusterOptions cluster;
  cluster.workers = options.workers;
  cluster.servers = options.servers;
  cluster.policy = PolicyFromName(options.store.on_death);
  cluster.log = state_->options.store.log;
  cluster.rows_dir = options.store.rows_dir;
  cluster.silence = options.store.silence;
  state_->cluster = std::make_shared<tkv::Cluster>(cluster);
}

Cluster::~Cluster() = default;

int Cluster::workers() const { return state_->options.workers; }

std::unique_ptr<KVStore> Cluster::Join(int rank) {
  if (rank < 0 || rank >= workers()) {
    throw Fail(Code::kInvalidArgument, "join: rank {}, the job has {}", rank, workers());
  }
  const ClusterOptions& options = state_->options;
  return std::make_unique<DistStore>(options.type, options.store,
                                     WorkerOf(state_->cluster, rank, options.type, options.store));
}

std::unique_ptr<KVStore> Cluster::Observe(uint32_t store) {
  const StoreOptions& options = state_->options.store;
  return std::make_unique<ObserverStore>(options, ObserverOf(state_->cluster, options), store);
}

void Cluster::KillServer(int index) {
  if (index < 0) throw Fail(Code::kInvalidArgument, "kill_server: server {}", index);
  state_->cluster->KillServer(static_cast<size_t>(index));
}

void Cluster::KillHead() { state_->cluster->KillHead(); }

}  // namespace tkv::testing
