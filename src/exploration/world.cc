#include "exploration/world.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "tkv/optimizer.h"

namespace tkv::exploration {
namespace {

constexpr uint32_t kServers = 2;
constexpr int kWorkers = 2;
constexpr uint32_t kChunks = 2;
constexpr uint32_t kChunkElements =
    1024;  // the smallest chunk; the second one holds the counts only
constexpr size_t kElements = kChunkElements + kPushes;
// Time stands still but for what comes soon, like another dial: nothing is ever given up.
constexpr Time kSoon = 3 * kSecond;
constexpr Time kFar = 1'000'000 * kSecond;

using Verb = Operation::Kind;

BufferPool* Pool() {
  static BufferPool pool(0);
  return &pool;
}

const std::string& KeyName() {
  static const std::string name = CanonicalKey(0, KeyView("w"));
  return name;
}

Bytes ValueWith(const Counts& counts) {
  const auto values = std::make_shared<std::vector<float>>(kElements, 0.0F);
  for (size_t i = 0; i < kPushes; ++i) {
    (*values)[i] = (*values)[kChunkElements + i] = static_cast<float>(counts[i]);
  }
  return {reinterpret_cast<const std::byte*>(values->data()), kElements * sizeof(float), values};
}

// What each push brings; made once, for nobody changes it.
const Bytes& ValueOf(size_t push) {
  static const std::vector<Bytes> values = [] {
    std::vector<Bytes> all;
    for (size_t i = 0; i < kPushes; ++i) {
      Counts counts{};
      counts[i] = 1;
      all.push_back(ValueWith(counts));
    }
    return all;
  }();
  return values[push];
}

const UpdateSpec& AddingSpec() {  // value += sum
  static const UpdateSpec spec = [] {
    UpdateSpec adds;
    adds.program = Optimizer::Create("test")->program().ToText();
    adds.params = {1.0};
    return adds;
  }();
  return spec;
}

bool CountsOf(const std::byte* data, Counts* counts) {
  for (size_t i = 0; i < kPushes; ++i) {
    float value = 0;
    std::memcpy(&value, data + i * sizeof value, sizeof value);
    if (!(value >= 0 && value < 256) || value != static_cast<float>(static_cast<int>(value))) {
      return false;
    }
    (*counts)[i] = static_cast<uint8_t>(value);
  }
  return true;
}

uint64_t PushesOf(int rank) { return uint64_t{0xFFFFFFFF} << (rank * 32); }
uint64_t PushesOf(int rank, int life) { return uint64_t{0xFFFF} << (rank * 32 + life * 16); }

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
            uint64_t(user.over), uint64_t(user.barriers), uint64_t(user.controls), user.base}) {
        add(value);
      }
      for (const auto& [push, round] : user.rounds) {
        add(push);
        add(round);
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
  add(left_);
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

// ---- users --------------------------------------------------------------------------------------

void World::RunUser(int index) {
  do {
    Actor* const actor = Edit(index);
    auto& node = static_cast<ClientNode&>(*actor->node);
    for (const Outcome& outcome : node.TakeOutcomes()) OnOutcome(index, outcome);
    if (node.member().refused() && actor->user.op == kNoOp) actor->user.over = true;
    Dispatch(index);
  } while (BeginNext(index));
}

// Begins the next operation of the program; false where there is none to begin now.
bool World::BeginNext(int index) {
  Actor* const actor = Edit(index);
  User& user = actor->user;
  const auto& node = static_cast<const ClientNode&>(*actor->node);
  if (user.over || user.op != kNoOp || !node.joined()) return false;
  const bool is_observer = actor->kind == Kind::kObserver;
  const std::string& program = actor->index == 0 ? scope_->program : scope_->second_program;
  const bool explores_init = !program.empty() && program[0] == 'I';
  if (!user.opened) {
    if (held_ && explores_init) return false;
    Begin(index, is_observer ? 'O' : 'I');
    return true;
  }
  if (user.next == 0 && !user.warm && !explores_init && user.life == 0) {
    user.warm = true;  // a connection to every server
    Begin(index, 'L');
    return true;
  }
  if (held_) return false;
  if (is_observer) {
    if (static_cast<int>(user.next) == scope_->reader_pulls) {
      user.over = true;
      return false;
    }
    ++user.next;
    Begin(index, 'L');
    return true;
  }
  if (user.next == 0 && user.life > 0) user.base = node.client().RoundOf(KeyName());
  while (user.next < program.size()) {
    const char verb = program[user.next++];
    if (verb == 'I') continue;  // done
    if (verb == 'P' || verb == 'X') {
      ++user.ordinal;
      if (static_cast<uint64_t>(user.ordinal) <= user.base) continue;  // an earlier life did it
    }
    if (verb == 'C' && (!node.client().IsSender() || user.life > 0)) continue;
    Begin(index, verb);
    return true;
  }
  user.over = true;
  return false;
}

void World::Begin(int index, char verb) {
  Actor* const actor = Edit(index);
  User& user = actor->user;
  user.verb = verb;
  user.accepted = false;
  Operation operation;
  operation.verb = std::string(1, verb);
  operation.key = KeyName();
  if (verb == 'P' || verb == 'X') {
    operation.value = ValueOf(PushId(actor->index, user.life, user.ordinal));
  }
  if (verb == 'L' || verb == 'X') {
    std::memset(actor->scratch.data, 0xFF, actor->scratch.size);
    operation.out = actor->scratch;
  }
  switch (verb) {
    case 'P':
      operation.kind = Verb::kPush;
      break;
    case 'L':
      operation.kind = Verb::kPull;
      break;
    case 'X':
      operation.kind = Verb::kPushPull;
      break;
    case 'B':
      operation.kind = Verb::kBarrier;
      ++user.barriers;
      break;
    case 'C':
      operation.kind = Verb::kControl;
      operation.key.clear();
      ++user.controls;
      operation.spec = AddingSpec();
      step_is_local_ = false;
      control_from_[static_cast<size_t>(actor->index)] =
          static_cast<const ClientNode&>(*actor->node).client().RoundOf(KeyName()) + 1;
      break;
    case 'Q':
      operation.kind = Verb::kLeave;
      operation.key.clear();
      break;
    case 'O':
      operation.kind = Verb::kOpen;
      break;
    default:
      operation.kind = Verb::kInit;
      operation.meta.name = KeyName();
      operation.meta.dtype = DType::kF32;
      operation.meta.shape = Shape({static_cast<int64_t>(kElements)});
      operation.meta.chunk_elements = kChunkElements;
      operation.meta.staleness = scope_->staleness;
      operation.value = ValueWith({});
  }
  auto& node = static_cast<ClientNode&>(*actor->node);
  user.op = node.client().next_op();
  node.Begin(std::move(operation), actor->clock);
  Dispatch(index);
}

void World::OnOutcome(int index, const Outcome& outcome) {
  Actor* const actor = Edit(index);
  User& user = actor->user;
  if (outcome.op != user.op) return Violate(NameOf(index) + ": an operation has ended twice");
  const bool pushes = user.verb == 'P' || user.verb == 'X';
  if (outcome.event == Outcome::Event::kAccepted) {
    if (user.accepted) Violate(NameOf(index) + ": a push was accepted twice");
    user.accepted = true;
    if (!pushes) return;
    const size_t push = PushId(actor->index, user.life, user.ordinal);
    user.rounds.emplace_back(push, outcome.round);
    return CheckAccepted(*actor, push, outcome.round);
  }
  if (outcome.event == Outcome::Event::kFailed) {
    user.over = true;
    CheckFailure(*actor, *outcome.error);
  } else {
    if (pushes && !user.accepted) Violate(NameOf(index) + ": done, and never accepted");
    if (user.verb == 'L' || user.verb == 'X') CheckPull(*actor, outcome.round);
    if (user.verb == 'B') CheckBarrier(*actor);
    if (user.verb == 'I' || user.verb == 'O') user.opened = true;
    if (user.verb == 'C') {
      step_is_local_ = false;
      control_done_[static_cast<size_t>(actor->index)] = 1;
    }
    if (user.verb == 'Q') {
      step_is_local_ = false;
      left_[static_cast<size_t>(actor->index)] = 1;
    }
  }
  user.op = kNoOp;
  user.verb = 0;
}

// ---- rules --------------------------------------------------------------------------------------

const World::Actor* World::ServerOf(uint32_t chunk) {
  step_is_local_ = false;
  return actors_[1 + ShardOf(IdOf(KeyName()), chunk, kServers)].get();
}

std::string World::NameOf(int index) const {
  if (index < 0) return "nobody";
  const ActorPtr& actor = actors_[static_cast<size_t>(index)];
  if (actor == nullptr) return "somebody dead";
  switch (actor->kind) {
    case Kind::kHead:
      return "head";
    case Kind::kServer:
      return format("server {}", actor->index);
    case Kind::kWorker:
      return actor->user.life == 0 ? format("worker {}", actor->index)
                                   : format("worker {}'s later life", actor->index);
    default:
      return "reader";
  }
}

// A version is made of one push of each member, of pushes that no other version is made of.
void World::Completed(const Shard& shard, const ChunkId& id, const Chunk& chunk) {
  if (id.key != IdOf(KeyName())) return;
  Actor* const server = edited_[1 + ShardOf(id.key, id.chunk, kServers)];
  Seen& seen = server->chunks[id.chunk];
  if (seen.values.empty()) {
    seen.values.emplace_back();
    seen.pushes.push_back(0);
    seen.adds.push_back(false);
  }
  const std::string where = format("chunk {} version {}", id.chunk, chunk.version);
  if (chunk.version != seen.values.size()) {
    return Violate(format("{} follows version {}", where, seen.values.size() - 1));
  }
  if (chunk.failure) return Violate(format("{}: {}", where, chunk.failure->what()));
  Counts counts{};
  if (!CountsOf(chunk.value.data, &counts)) return Violate(where + ": no sum of pushes");
  const bool adds = chunk.rule != nullptr;
  uint64_t pushes = 0;
  for (size_t i = 0; i < kPushes; ++i) {
    const int times = counts[i] - (adds ? seen.values.back()[i] : 0);
    if (times < 0 || times > 1) {
      return Violate(format("{}: push {} counts {} times", where, i, times));
    }
    if (times == 1) pushes |= uint64_t{1} << i;
  }
  for (const uint64_t earlier : seen.pushes) {
    if ((earlier & pushes) != 0) return Violate(where + ": a push of an earlier version counts");
  }
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    const bool is_due = control_from_[rank] != 0 && chunk.version >= control_from_[rank];
    if (is_due && control_done_[rank] != 0 && !adds) {
      return Violate(where + ": a CONTROL that is in force does not count");
    }
  }
  const bool may_add = std::any_of(control_from_.begin(), control_from_.end(), [&](uint64_t from) {
    return from != 0 && chunk.version >= from;
  });
  if (adds && !may_add) return Violate(where + ": a CONTROL counts too early");
  const Shard::Key* const key = shard.FindKey(id.key);
  bool somebody_abstains = false;
  for (int rank = 0; rank < kWorkers; ++rank) {
    const uint64_t own = pushes & PushesOf(rank);
    if ((own & (own - 1)) != 0) {
      return Violate(format("{}: two pushes of worker {}", where, rank));
    }
    const bool abstains = key->AbstainOf(rank) >= chunk.version;
    somebody_abstains = somebody_abstains || abstains;
    if (own == 0 && shard.epoch().IsMember(rank) && !abstains) {
      return Violate(format("{}: complete without worker {}", where, rank));
    }
  }
  if (pushes == 0 && !somebody_abstains) return Violate(where + ": made of nothing");
  // The same version is the same round in every chunk, but for what the dead have not sent.
  const Actor* const other = ServerOf(1 - id.chunk);
  const auto seen_there = other->chunks.find(1 - id.chunk);
  if (seen_there != other->chunks.end() && seen_there->second.values.size() > chunk.version) {
    const auto at = static_cast<size_t>(chunk.version);
    if (seen_there->second.adds[at] != adds) {
      Violate(where + ": another rule than in the other chunk");
    }
    uint64_t torn = seen_there->second.pushes[at] ^ pushes;
    for (int rank = 0; rank < kWorkers; ++rank) {
      if (deaths_[static_cast<size_t>(rank)] != 0) torn &= ~PushesOf(rank, 0);
    }
    if (torn != 0) Violate(where + ": other pushes than in the other chunk");
  }
  seen.values.push_back(counts);
  seen.pushes.push_back(pushes);
  seen.adds.push_back(adds);
}

// What was accepted is in its round, or waits for it, in every chunk.
void World::CheckAccepted(const Actor& actor, size_t push, uint64_t round) {
  for (uint32_t c = 0; c < kChunks; ++c) {
    const Actor* const server = ServerOf(c);
    const auto& shard = static_cast<const ServerNode&>(*server->node).shard();
    const Chunk* const chunk = shard.FindChunk({IdOf(KeyName()), c});
    const std::string what = format("worker {}: push {} is accepted for round {} and chunk {}",
                                    actor.index, push, round, c);
    if (chunk == nullptr) {
      Violate(what + " is not there");
    } else if (chunk->version < round) {
      if (!chunk->HasArrived(round, actor.index)) Violate(what + " has not got it");
    } else if ((server->chunks.at(c).pushes[static_cast<size_t>(round)] >> push & 1) == 0) {
      Violate(what + " does not count it");
    }
  }
}

// A worker sees the round of its last push, whole; a reader sees one version, whole.
void World::CheckPull(const Actor& actor, uint64_t version) {
  const auto& client = static_cast<const ClientNode&>(*actor.node).client();
  const std::string who =
      actor.kind == Kind::kWorker ? format("worker {}", actor.index) : std::string("reader");
  const bool is_exact = scope_->staleness == 0;
  if (actor.kind == Kind::kWorker && is_exact && version != client.RoundOf(KeyName())) {
    return Violate(
        format("{}: pulled version {} after its push {}", who, version, client.RoundOf(KeyName())));
  }
  for (uint32_t c = 0; c < kChunks; ++c) {
    Counts counts{};
    const float* const at = actor.scratch.as<float>() + size_t{c} * kChunkElements;
    if (!CountsOf(reinterpret_cast<const std::byte*>(at), &counts)) {
      return Violate(format("{}: pulled something that was never there", who));
    }
    const Actor* const server = ServerOf(c);
    const auto seen = server->chunks.find(c);
    std::vector<Counts> known{Counts{}};
    if (seen != server->chunks.end()) known = seen->second.values;
    const bool fits = is_exact ? version < known.size() && known[version] == counts
                               : std::find(known.begin(), known.end(), counts) != known.end();
    if (!fits) {
      return Violate(
          format("{}: pulled something else than version {} of chunk {}", who, version, c));
    }
  }
}

void World::CheckBarrier(const Actor& actor) {
  step_is_local_ = false;
  for (const ActorPtr& other : actors_) {
    if (other == nullptr || other->kind != Kind::kWorker || deaths_[0] + deaths_[1] > 0) continue;
    if (other->user.barriers < actor.user.barriers) {
      Violate(format("worker {} has passed barrier {} before worker {} came", actor.index,
                     actor.user.barriers, other->index));
    }
  }
}

void World::CheckFailure(const Actor& actor, const Error& error) {
  step_is_local_ = false;
  const std::string what =
      format("{} {}: {}: {}", actor.kind == Kind::kWorker ? "worker" : "reader", actor.index,
             tkv::Name(error.code()), error.what());
  const auto rank = static_cast<size_t>(actor.index);
  if (actor.kind == Kind::kWorker && actor.user.life == 0 && deaths_[rank] != 0) {
    if (error.code() != Code::kAborted && error.code() != Code::kUnavailable) Violate(what);
    return;  // it is held for dead
  }
  // Nobody else creates keys.
  if (actor.user.verb == 'I' && deaths_[0] != 0 && error.code() == Code::kUnavailable) return;
  for (size_t gone = 0; gone < kWorkers; ++gone) {
    const bool may_stop = scope_->policy == Epoch::Policy::kFail ||
                          (scope_->policy == Epoch::Policy::kWait && left_[gone] != 0);
    const std::string name = format("worker {}", gone);
    if (may_stop && deaths_[gone] + left_[gone] > 0 && error.code() == Code::kUnavailable &&
        what.find(name) != std::string::npos) {
      return;
    }
  }
  Violate(what);
}

std::string World::CheckEnd() const {
  for (size_t i = 0; i < actors_.size(); ++i) {
    const ActorPtr& actor = actors_[i];
    if (actor == nullptr || (actor->kind != Kind::kWorker && actor->kind != Kind::kObserver)) {
      continue;
    }
    if (actor->user.over) continue;
    return format("nothing will ever happen again, and {} waits in {} (step {} of '{}')",
                  NameOf(static_cast<int>(i)), actor->user.verb == 0 ? '-' : actor->user.verb,
                  actor->user.next, actor->index == 0 ? scope_->program : scope_->second_program);
  }
  return {};
}

// ---- words --------------------------------------------------------------------------------------

std::string World::Describe(const Action& action) const {
  switch (action.kind) {
    case Action::Kind::kDeliver: {
      const Wire& wire = *wires_[action.index];
      const End& end = wire.ends[action.detail];
      const std::string from = NameOf(wire.ends[1 - action.detail].actor);
      const PacketPtr& packet = end.arriving.front();
      if (packet == nullptr) return format("{}: lost {}", NameOf(end.actor), from);
      std::string text = format("{} <- {}{}:", NameOf(end.actor), from,
                                !scope_->splits ? ""
                                : end.landed    ? " (body)"
                                                : " (head)");
      std::vector<Message> messages;
      const auto head = std::as_bytes(std::span(packet->frame.head));
      DecodeMessages(DecodeHeader(head, FrameLimits{}), head, &messages);
      for (const Message& message : messages) {
        text += format(" {}(chunk {}, number {}, seq {})", tkv::Name(message.type), message.chunk,
                       message.number, message.seq);
      }
      return text;
    }
    case Action::Kind::kTick:
      return format("time of {}", NameOf(action.index));
    case Action::Kind::kLose: {
      const Wire& wire = *wires_[action.index];
      return format("LOSS of {} - {}", NameOf(wire.ends[0].actor), NameOf(wire.ends[1].actor));
    }
    case Action::Kind::kKill:
      return format("DEATH of worker {}, lost on the way to servers {:#b}", action.index,
                    action.detail);
    case Action::Kind::kVerdict:
      return format("the head is told that worker {} has ended", action.index);
    case Action::Kind::kRestart:
      return format("a later life of worker {}", action.index);
    default:
      return format("an EPOCH to {} is skipped", NameOf(wires_[action.index]->ends[0].actor));
  }
}

}  // namespace tkv::exploration
