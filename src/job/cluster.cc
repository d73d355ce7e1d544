#include "job/cluster.h"
#include "rows/row_file.h"

#include "base/format.h"
#include "job/worker.h"

namespace tkv {

Epoch::Policy PolicyFromName(const std::string& name) {
  if (name == "fail" || name.empty()) return Epoch::Policy::kFail;
  if (name == "wait") return Epoch::Policy::kWait;
  if (name == "continue") return Epoch::Policy::kContinue;
  throw Fail(Code::kInvalidArgument, "on_death='{}'; there are fail, continue, wait", name);
}

const char* NameOf(Epoch::Policy policy) {
  switch (policy) {
    case Epoch::Policy::kFail:
      return "fail";
    case Epoch::Policy::kWait:
      return "wait";
    case Epoch::Policy::kContinue:
      return "continue";
  }
  return "?";
}

std::string Cluster::AddressOf(const Peer& peer) {
  return peer.kind == Peer::Kind::kHead ? "head" : Format("server{}", peer.index);
}

Cluster::Cluster(const ClusterOptions& options) {
  if (options.workers < 1 || options.workers > kWorkersMax || options.servers < 1 ||
      options.servers > static_cast<int>(kServersMax)) {
    throw Fail(
        Code::kInvalidArgument,
        "create: {} workers and {} servers; 1 to {} workers and 1 to {} servers are possible",
        options.workers, options.servers, kWorkersMax, kServersMax);
  }
  const NodeThreadOptions thread{AddressOf, options.log, {}};
  HeadOptions head;
  head.job = kJob;
  head.workers = options.workers;
  head.servers = options.servers;
  head.policy = options.policy;
  head.dead_after = std::chrono::nanoseconds(options.silence).count();
  pools_.push_back(std::make_unique<BufferPool>());
  head_ = std::make_unique<NodeThread>(
      std::make_unique<HeadNode>(head, pools_.back().get(), NodeThread::Now()),
      network_.Listen("head"), thread);
  head_->Start();
  for (int i = 0; i < options.servers; ++i) {
    MemberOptions member;
    member.job = kJob;
    member.role = Role::kServer;
    member.rank = i;
    member.process = static_cast<uint64_t>(i) + 1;
    member.AllowSilence(head.dead_after);
    ShardOptions shard;
    shard.job = kJob;
    shard.protocol = ThisProtocol();
    shard.index = static_cast<uint32_t>(i);
    if (!options.rows_dir.empty()) shard.disk = std::make_shared<RowFile>(options.rows_dir);
    pools_.push_back(std::make_unique<BufferPool>());
    auto server = std::make_unique<ServerNode>(member, shard, pools_.back().get());
    server->SetClock(NodeThread::Now);
    servers_.push_back(std::make_unique<NodeThread>(
        std::move(server),
        network_.Listen(AddressOf({Peer::Kind::kServer, static_cast<uint32_t>(i)})), thread));
    servers_.back()->Start();
  }
}

Cluster::~Cluster() {
  for (auto& server : servers_) server.reset();
  head_.reset();
}

void Cluster::KillServer(size_t index) {
  if (index >= servers_.size()) {
    throw Fail(Code::kInvalidArgument, "kill_server: server {}, there are {}", index,
               servers_.size());
  }
  servers_[index].reset();
}

namespace {

std::shared_ptr<Worker> MemberOf(const std::shared_ptr<Cluster>& cluster, Role role, Rank rank,
                                 const std::string& doing, const StoreOptions& options) {
  WorkerOptions worker;
  worker.job = Cluster::kJob;
  worker.role = role;
  worker.rank = rank;
  worker.endpoint = cluster->network()->Listen(Format("worker.{}", LifeNumber()));
  worker.address_of = Cluster::AddressOf;
  worker.host = cluster;
  return std::make_shared<Worker>(doing, options, std::move(worker));
}

}  // namespace

std::shared_ptr<Worker> WorkerOf(const std::shared_ptr<Cluster>& cluster, Rank rank,
                                 const std::string& type, const StoreOptions& options) {
  return MemberOf(cluster, Role::kWorker, rank, Format("create '{}'", type), options);
}

std::shared_ptr<Worker> ObserverOf(const std::shared_ptr<Cluster>& cluster,
                                   const StoreOptions& options) {
  return MemberOf(cluster, Role::kObserver, kNoRank, "connect", options);
}

}  // namespace tkv
