// Transports frames, dials and closed links between the actors of a world.

#include <algorithm>
#include <cstring>

#include "exploration/world.h"

namespace tkv::exploration {

// A listener that passes completed versions of one server's shard to the world.
class World::Recorder final : public ShardListener {
 public:
  explicit Recorder(World* world) : world_(world) {}
  void Completed(const ShardCore& shard, const ChunkId& id, const Chunk& chunk) override {
    world_->Completed(shard, id, chunk);
  }

 private:
  World* world_;
};

// Returns true if this event was seen before in this state of the actor, and repeats its effect.
// Otherwise begins to record the effect.
bool World::RepeatKnownStep(int actor, const Fingerprint& event) {
  const auto at = static_cast<size_t>(actor);
  std::string bytes(sizeof(Fingerprint) * 2, 0);
  std::memcpy(bytes.data(), &actors_[at]->hash, sizeof(Fingerprint));
  std::memcpy(bytes.data() + sizeof(Fingerprint), &event, sizeof(Fingerprint));
  step_key_ = FingerprintOf(bytes);
  const auto known = known_steps_->by_event.find(step_key_);
  if (known == known_steps_->by_event.end()) {
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
  if (RepeatKnownStep(index, FingerprintOf("tick"))) return;
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
  if (RepeatKnownStep(receiver,
                      FingerprintOf({reinterpret_cast<const char*>(&event), sizeof event})))
    return;
  Actor* const actor = Edit(receiver);
  Recorder recorder(this);
  if (actor->kind == Kind::kServer) {
    static_cast<ServerNode&>(*actor->node).AddListener(&recorder);
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
  if (actor->kind == Kind::kServer)
    static_cast<ServerNode&>(*actor->node).RemoveListener(&recorder);
}

void World::CloseEnd(size_t index, size_t side) {
  Wire* const wire = EditWire(index);
  wire->ends[side] = {};
  if (End& other = wire->ends[1 - side]; other.actor >= 0) other.arriving.push_back(nullptr);
}

// Puts a packet on its way, or closes the link if there is no packet.
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

// Performs the output of a node: sends, dials and closed links.  A dial succeeds at once.
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

// Runs every changed actor until it needs an event.
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

}  // namespace tkv::exploration
