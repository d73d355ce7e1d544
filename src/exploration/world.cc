#include "exploration/world.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"

namespace tkv::exploration {
namespace {

// Time stands still but for what comes soon, like another dial: nothing is ever given up.
constexpr Time kSoon = 3 * kSecond;
constexpr Time kFar = 1'000'000 * kSecond;

BufferPool* Pool() {
  static BufferPool pool(0);
  return &pool;
}

}  // namespace

// Hears what the shard of one server completes.
class World::Recorder final : public ShardListener {
 public:
  explicit Recorder(World* world) : world_(world) {}
  void Completed(const Shard& shard, const ChunkId& id, const Chunk& chunk) override {
    world_->Completed(shard, id, chunk);
  }

 private:
  World* world_;
};

// ---- the beginning ------------------------------------------------------------------------------

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
  memory_->steps.clear();  // made while programs were held
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

// ---- copies -------------------------------------------------------------------------------------

// The actor, for change: what other worlds share is copied first.
World::Actor* World::Edit(int index) {
  const auto at = static_cast<size_t>(index);
  if (edited_[at] != nullptr) return edited_[at];
  auto copy = std::make_shared<Actor>(*actors_[at]);
  const Node& node = *copy->node;
  switch (copy->kind) {
    case Kind::kHead:
      copy->node = std::make_shared<HeadNode>(static_cast<const HeadNode&>(node));
      break;
    case Kind::kServer:
      copy->node = std::make_shared<ServerNode>(static_cast<const ServerNode&>(node));
      break;
    default:
      copy->node = std::make_shared<ClientNode>(static_cast<const ClientNode&>(node));
      // All copies of a client write into one memory: it is brought up to date before each use.
      if (!copy->out.empty()) {
        std::memcpy(copy->scratch.data, copy->out.data(), kPushes * sizeof(float));
        std::memcpy(copy->scratch.as<float>() + kChunkElements,
                    copy->out.data() + kPushes * sizeof(float), kPushes * sizeof(float));
      }
  }
  edited_[at] = copy.get();
  actors_[at] = std::move(copy);
  return edited_[at];
}

// The changes are done: takes their fingerprints.
void World::Seal() {
  std::string bytes;
  const auto add = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (Actor*& actor : edited_) {
    if (actor == nullptr) continue;
    bytes.clear();
    add(actor->kind);
    add(actor->index);
    add(actor->number);
    add(actor->clock);
    if (actor->kind == Kind::kHead) {
      AppendState(static_cast<const HeadNode&>(*actor->node), &bytes);
    } else if (actor->kind == Kind::kServer) {
      AppendState(static_cast<const ServerNode&>(*actor->node), &bytes);
      for (const auto& [chunk, seen] : actor->chunks) {
        add(chunk);
        for (const uint64_t pushes : seen.pushes) add(pushes);
        for (const bool adds : seen.adds) add(adds);
      }
    } else {
      const User& user = actor->user;
      // Of what has been pulled only the counts matter.
      std::memset(actor->scratch.as<float>() + kPushes, 0,
                  (kChunkElements - kPushes) * sizeof(float));
      if (user.verb == 'L' || user.verb == 'X') {
        actor->out.assign(reinterpret_cast<const char*>(actor->scratch.data),
                          kPushes * sizeof(float));
        actor->out.append(
            reinterpret_cast<const char*>(actor->scratch.as<float>() + kChunkElements),
            kPushes * sizeof(float));
      } else {
        actor->out.clear();
        std::memset(actor->scratch.data, 0, actor->scratch.size);
      }
      AppendState(static_cast<const ClientNode&>(*actor->node), &bytes);
      for (const uint64_t value :
           {uint64_t(user.life), uint64_t(user.next), user.op, uint64_t(user.verb),
            uint64_t(user.ordinal), uint64_t(user.accepted), uint64_t(user.opened),
            uint64_t(user.over), uint64_t(user.barriers), user.base}) {
        add(value);
      }
    }
    actor->hash = FingerprintOf(bytes);
    actor = nullptr;
  }
  for (WirePtr& wire : wires_) {
    if (wire->hash == Fingerprint{}) std::const_pointer_cast<Wire>(wire)->Seal();
  }
  if (step_actor_ >= 0 && step_is_local_ && violation_.empty()) {
    memory_->steps.emplace(step_key_,
                           Step{actors_[static_cast<size_t>(step_actor_)], std::move(step_sent_)});
  }
  step_actor_ = -1;
  step_sent_.clear();
}

void World::Wire::Seal() {
  std::string bytes;
  for (const End& end : ends) {
    bytes.append(reinterpret_cast<const char*>(&end.actor), sizeof end.actor);
    bytes.append(reinterpret_cast<const char*>(&end.link), sizeof end.link);
    bytes.push_back(static_cast<char>(end.landed));
    for (const PacketPtr& packet : end.arriving) {
      const Fingerprint arriving = packet == nullptr ? Fingerprint{} : packet->hash;
      bytes.append(reinterpret_cast<const char*>(&arriving), sizeof arriving);
    }
  }
  hash = FingerprintOf(bytes);
}

Fingerprint World::fingerprint() const {
  std::string bytes;
  const auto add = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const ActorPtr& actor : actors_) add(actor == nullptr ? Fingerprint{} : actor->hash);
  std::vector<Fingerprint> wires;
  wires.reserve(wires_.size());
  for (const WirePtr& wire : wires_) wires.push_back(wire->hash);
  std::sort(wires.begin(), wires.end());
  for (const Fingerprint& wire : wires) add(wire);
  add(losses_);
  add(kills_);
  add(lives_);
  add(verdict_);
  add(deaths_);
  add(control_from_);
  add(control_done_);
  return FingerprintOf(bytes);
}

// ---- what can happen ----------------------------------------------------------------------------

int World::WorkerOf(int rank) const {
  for (size_t i = actors_.size(); i-- > 0;) {
    if (actors_[i] != nullptr && actors_[i]->kind == Kind::kWorker && actors_[i]->index == rank) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

std::vector<Action> World::Actions() const {
  std::vector<Action> actions;
  const auto add = [&](Action::Kind kind, size_t index, size_t detail = 0) {
    actions.push_back({kind, static_cast<uint8_t>(index), static_cast<uint8_t>(detail)});
  };
  for (size_t w = 0; w < wires_.size(); ++w) {
    for (size_t side = 0; side < 2; ++side) {
      if (!wires_[w]->ends[side].arriving.empty()) add(Action::Kind::kDeliver, w, side);
    }
  }
  if (held_) return actions;
  for (size_t i = 0; i < actors_.size(); ++i) {
    if (actors_[i] == nullptr) continue;
    if (actors_[i]->node->deadline() - actors_[i]->clock <= kSoon) add(Action::Kind::kTick, i);
  }
  for (size_t w = 0; w < wires_.size() && losses_ < scope_->losses; ++w) {
    const End& dialed = wires_[w]->ends[0];
    const End& accepted = wires_[w]->ends[1];
    if (dialed.actor < 0 || accepted.actor < 0) continue;
    const Kind kind = actors_[static_cast<size_t>(dialed.actor)]->kind;
    if (kind == Kind::kWorker || kind == Kind::kObserver) add(Action::Kind::kLose, w);
  }
  for (size_t w = 0; w < wires_.size() && scope_->skips_epochs; ++w) {
    const End& accepted = wires_[w]->ends[1];
    const End& dialed = wires_[w]->ends[0];
    if (accepted.actor != 0 || dialed.arriving.size() < 2 || dialed.landed) continue;
    if (dialed.arriving[0] != nullptr && dialed.arriving[1] != nullptr &&
        dialed.arriving[0]->is_epoch && dialed.arriving[1]->is_epoch) {
      add(Action::Kind::kSkipEpoch, w);
    }
  }
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    const int worker = WorkerOf(static_cast<int>(rank));
    const bool is_first_life = worker >= 0 && actors_[static_cast<size_t>(worker)]->user.life == 0;
    if (is_first_life && kills_ < scope_->kills) {
      for (size_t lost = 0; lost < size_t{1} << kServers; ++lost) {
        add(Action::Kind::kKill, rank, lost);
      }
    }
    const bool nobody_died = deaths_[0] + deaths_[1] == 0;
    if (verdict_[rank] != 0 || (is_first_life && scope_->zombie && nobody_died)) {
      add(Action::Kind::kVerdict, rank);
    }
    if (scope_->restarts && deaths_[rank] != 0 && lives_[rank] == 1) {
      add(Action::Kind::kRestart, rank);
    }
  }
  return actions;
}

std::string World::Apply(const Action& action) {
  edited_.assign(actors_.size(), nullptr);
  switch (action.kind) {
    case Action::Kind::kDeliver:
      Deliver(action.index, action.detail);
      break;
    case Action::Kind::kTick:
      Tick(action.index);
      break;
    case Action::Kind::kLose:
      ++losses_;
      for (End& end : EditWire(action.index)->ends) {
        end.arriving.assign(1, nullptr);
        end.landed = false;
      }
      break;
    case Action::Kind::kKill:
      Kill(action.index, action.detail);
      break;
    case Action::Kind::kVerdict: {
      uint64_t incarnation = verdict_[action.index];
      if (incarnation == 0) {  // it goes on, and does not know
        const auto worker = static_cast<size_t>(WorkerOf(action.index));
        incarnation = static_cast<const ClientNode&>(*actors_[worker]->node).client().incarnation();
        deaths_[action.index] = 1;
      }
      verdict_[action.index] = 0;
      static_cast<HeadNode&>(*Edit(0)->node).Exited(Role::kWorker, action.index, incarnation);
      break;
    }
    case Action::Kind::kRestart:
      ++lives_[action.index];
      AddActor(Kind::kWorker, action.index, 1);
      break;
    case Action::Kind::kSkipEpoch: {
      auto& arriving = EditWire(action.index)->ends[0].arriving;
      arriving.erase(arriving.begin());
      break;
    }
  }
  Settle();
  Seal();
  return violation_;
}

void World::Kill(int rank, unsigned lost_servers) {
  ++kills_;
  const int victim = WorkerOf(rank);
  const auto at = static_cast<size_t>(victim);
  const auto& node = static_cast<const ClientNode&>(*actors_[at]->node);
  verdict_[static_cast<size_t>(rank)] = node.client().incarnation();
  deaths_[static_cast<size_t>(rank)] = 1;
  for (size_t w = 0; w < wires_.size(); ++w) {
    for (size_t side = 0; side < 2; ++side) {
      if (wires_[w]->ends[side].actor != victim) continue;
      Wire* const wire = EditWire(w);
      End& other = wire->ends[1 - side];
      if (other.actor >= 0) {
        const Actor& peer = *actors_[static_cast<size_t>(other.actor)];
        if (peer.kind == Kind::kServer && (lost_servers >> peer.index & 1) != 0) {
          other.arriving.clear();
          other.landed = false;
        }
        other.arriving.push_back(nullptr);
      }
      wire->ends[side] = {};
    }
  }
  actors_[at] = nullptr;
}

// ---- the network --------------------------------------------------------------------------------

// The wire, for change; Seal takes its fingerprint again.
World::Wire* World::EditWire(size_t wire) {
  auto copy = std::make_shared<Wire>(*wires_[wire]);
  Wire* const edited = copy.get();
  edited->hash = {};
  wires_[wire] = std::move(copy);
  return edited;
}

// Whether this event in this state has been seen before: then what it did is done again.
bool World::Recall(int actor, const Fingerprint& event) {
  const auto at = static_cast<size_t>(actor);
  std::string bytes(sizeof(Fingerprint) * 2, 0);
  std::memcpy(bytes.data(), &actors_[at]->hash, sizeof(Fingerprint));
  std::memcpy(bytes.data() + sizeof(Fingerprint), &event, sizeof(Fingerprint));
  step_key_ = FingerprintOf(bytes);
  const auto known = memory_->steps.find(step_key_);
  if (known == memory_->steps.end()) {
    step_actor_ = actor;
    step_sent_.clear();
    step_is_local_ = true;
    return false;
  }
  actors_[at] = known->second.after;
  for (const Sent& sent : known->second.sent) Send(actor, sent);
  return true;
}

void World::Tick(int index) {
  if (Recall(index, FingerprintOf("tick"))) return;
  Actor* const actor = Edit(index);
  actor->clock = std::max(actor->clock, actor->node->deadline());
  actor->node->Tick(actor->clock);
}

void World::Deliver(size_t index, size_t side) {
  Wire* const wire = EditWire(index);
  End& end = wire->ends[side];
  const int receiver = end.actor;
  const LinkId link = end.link;
  const PacketPtr packet = end.arriving.front();
  const bool takes_head = !end.landed;
  const bool takes_bodies = end.landed || !scope_->splits;
  if (packet == nullptr) {
    end = {};
  } else {
    end.landed = !takes_bodies;
    if (takes_bodies) end.arriving.erase(end.arriving.begin());
  }
  struct Event {
    LinkId link;
    Fingerprint packet;
    uint64_t parts;
  } event{link, packet == nullptr ? Fingerprint{} : packet->hash,
          uint64_t{takes_head} + 2 * uint64_t{takes_bodies}};
  if (Recall(receiver, FingerprintOf({reinterpret_cast<const char*>(&event), sizeof event})))
    return;
  Actor* const actor = Edit(receiver);
  Recorder recorder(this);
  if (actor->kind == Kind::kServer) {
    static_cast<ServerNode&>(*actor->node).SetListener(&recorder);
  }
  if (packet == nullptr) {
    actor->node->Closed(link, actor->clock);
  } else {
    try {
      if (takes_head) {
        const std::vector<Block> blocks =
            actor->node->Land(link, std::as_bytes(std::span(packet->frame.head)));
        for (size_t i = 0; i < blocks.size(); ++i) {
          const Bytes& body = packet->frame.bodies[i];
          if (blocks[i]) std::memcpy(blocks[i].data, body.data, body.size);
        }
      }
      if (takes_bodies) actor->node->Received(link, actor->clock);
    } catch (const Error&) {
      Send(receiver, {link, nullptr});
      actor->node->Closed(link, actor->clock);
    }
  }
  if (actor->kind == Kind::kServer) static_cast<ServerNode&>(*actor->node).SetListener(nullptr);
}

void World::CloseEnd(size_t index, size_t side) {
  Wire* const wire = EditWire(index);
  wire->ends[side] = {};
  if (End& other = wire->ends[1 - side]; other.actor >= 0) other.arriving.push_back(nullptr);
}

// A packet, or the end of the link.
void World::Send(int actor, const Sent& sent) {
  if (actor == step_actor_) step_sent_.push_back(sent);
  for (size_t w = 0; w < wires_.size(); ++w) {
    for (size_t side = 0; side < 2; ++side) {
      const End& end = wires_[w]->ends[side];
      if (end.actor != actor || end.link != sent.link) continue;
      if (sent.packet == nullptr) return CloseEnd(w, side);
      if (wires_[w]->ends[1 - side].actor < 0) return;
      EditWire(w)->ends[1 - side].arriving.push_back(sent.packet);
      return;
    }
  }
}

// Takes what a node wants from its transport.  A dial is answered at once.
void World::Dispatch(int index) {
  Actor* const actor = Edit(index);
  NodeOutput output = actor->node->TakeOutput();
  for (NodeOutput::Send& send : output.sends) {
    auto packet = std::make_shared<Packet>();
    packet->hash = FingerprintOf(send.frame);
    std::vector<Message> messages;
    const auto head = std::as_bytes(std::span(send.frame.head));
    DecodeMessages(DecodeHeader(head, FrameLimits{}), head, &messages);
    packet->is_epoch = messages.size() == 1 && messages[0].type == Type::kEpoch;
    packet->frame = std::move(send.frame);
    Send(index, {send.link, std::move(packet)});
  }
  for (const LinkId link : output.closes) Send(index, {link, nullptr});
  for (const NodeOutput::Dial& dial : output.dials) {
    step_is_local_ = false;
    const int target =
        dial.peer.kind == Peer::Kind::kHead ? 0 : 1 + static_cast<int>(dial.peer.index);
    auto wire = std::make_shared<Wire>();
    wire->ends[0] = {index, dial.link, {}, false};
    wire->ends[1] = {target, Edit(target)->node->Accept(), {}, false};
    wires_.push_back(std::move(wire));
    actor->node->Opened(dial.link, actor->clock);
    Dispatch(index);
  }
}

// Lets everybody do what needs nothing to arrive.
void World::Settle() {
  for (size_t i = 0; i < actors_.size(); ++i) {
    if (actors_[i] == nullptr || edited_[i] == nullptr) continue;
    const int index = static_cast<int>(i);
    Dispatch(index);
    if (actors_[i]->kind == Kind::kWorker || actors_[i]->kind == Kind::kObserver) RunUser(index);
  }
  std::erase_if(wires_, [](const WirePtr& wire) {
    return wire->ends[0].actor < 0 && wire->ends[1].actor < 0;
  });
}

// ---- words --------------------------------------------------------------------------------------

std::string World::Describe(const Action& action) const {
  switch (action.kind) {
    case Action::Kind::kDeliver: {
      const Wire& wire = *wires_[action.index];
      const End& end = wire.ends[action.detail];
      const std::string from = NameOf(wire.ends[1 - action.detail].actor);
      const PacketPtr& packet = end.arriving.front();
      if (packet == nullptr) return Format("{}: lost {}", NameOf(end.actor), from);
      std::string text = Format("{} <- {}{}:", NameOf(end.actor), from,
                                !scope_->splits ? ""
                                : end.landed    ? " (body)"
                                                : " (head)");
      std::vector<Message> messages;
      const auto head = std::as_bytes(std::span(packet->frame.head));
      DecodeMessages(DecodeHeader(head, FrameLimits{}), head, &messages);
      for (const Message& message : messages) {
        text += Format(" {}(chunk {}, number {}, seq {})", tkv::Name(message.type), message.chunk,
                       message.number, message.seq);
      }
      return text;
    }
    case Action::Kind::kTick:
      return Format("time of {}", NameOf(action.index));
    case Action::Kind::kLose: {
      const Wire& wire = *wires_[action.index];
      return Format("LOSS of {} - {}", NameOf(wire.ends[0].actor), NameOf(wire.ends[1].actor));
    }
    case Action::Kind::kKill:
      return Format("DEATH of worker {}, lost on the way to servers {:#b}", action.index,
                    action.detail);
    case Action::Kind::kVerdict:
      return Format("the head is told that worker {} has ended", action.index);
    case Action::Kind::kRestart:
      return Format("a later life of worker {}", action.index);
    default:
      return Format("an EPOCH to {} is skipped", NameOf(wires_[action.index]->ends[0].actor));
  }
}

}  // namespace tkv::exploration
