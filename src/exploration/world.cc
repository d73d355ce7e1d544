// How the job of a world begins: its machines start, join and make the key.

#include "exploration/world.h"

namespace tkv::exploration {
namespace {

// A timeout that never expires during an exploration.
constexpr Time kFar = 1'000'000 * kSecond;

BufferPool* Pool() {
  static BufferPool pool(0);
  return &pool;
}

}  // namespace

World::World(const Scope* scope) : scope_(scope) {
  AddActor(Kind::kHead, 0, 0);
  for (uint32_t i = 0; i < kServers; ++i) AddActor(Kind::kServer, static_cast<int>(i), 0);
  for (int rank = 0; rank < kWorkers; ++rank) AddActor(Kind::kWorker, rank, 0);
  if (scope_->reader_pulls > 0) AddActor(Kind::kObserver, 0, 0);
  const auto run = [this] {
    for (;;) {
      const std::vector<Action> actions = Actions();
      if (actions.empty() || actions.front().kind != Action::Kind::kDeliver) return;
      Apply(actions.front());
    }
  };
  Settle();
  Seal();
  run();
  held_ = false;
  known_steps_->by_event.clear();  // these steps were recorded while programs were held
  for (size_t i = 0; i < actors_.size(); ++i) {
    if (actors_[i]->kind == Kind::kWorker || actors_[i]->kind == Kind::kObserver) {
      Edit(static_cast<int>(i));
    }
  }
  Settle();
  Seal();
}

int World::AddActor(Kind kind, int index, int life) {
  auto actor = std::make_shared<Actor>();
  actor->kind = kind;
  actor->index = index;
  actor->number = actors_.size() + 1;
  actor->clock = kSecond;
  actor->user.life = life;
  MemberOptions member;
  member.job = "exploration";
  member.process = actor->number;
  member.rank = index;
  member.ping_every = member.dead_after = kFar;
  if (kind == Kind::kHead) {
    HeadOptions head;
    head.job = member.job;
    head.workers = kWorkers;
    head.servers = static_cast<int>(kServers);
    head.policy = scope_->policy;
    head.dead_after = kFar;
    actor->node = std::make_shared<HeadNode>(head, Pool(), actor->clock);
  } else if (kind == Kind::kServer) {
    member.role = Role::kServer;
    ShardOptions shard;
    shard.job = member.job;
    shard.index = static_cast<uint32_t>(index);
    actor->node = std::make_shared<ServerNode>(member, shard, Pool());
  } else {
    member.role = kind == Kind::kWorker ? Role::kWorker : Role::kObserver;
    if (kind == Kind::kObserver) member.rank = kNoRank;
    ClientOptions client;
    client.job = member.job;
    client.patience = client.server_patience = client.ping_after = client.first_notice = kFar;
    actor->node = std::make_shared<ClientNode>(member, client, Pool());
    actor->scratch = Pool()->Allocate(kElements * sizeof(float));
  }
  actors_.push_back(actor);
  edited_.resize(actors_.size(), nullptr);
  edited_.back() = actor.get();
  actor->node->Start(actor->clock);
  return static_cast<int>(actors_.size()) - 1;
}

}  // namespace tkv::exploration
