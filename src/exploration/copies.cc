// Shares unchanged parts between worlds: actors and wires are copied before a change, and their
// fingerprints are computed after it.

#include <algorithm>
#include <cstring>

#include "exploration/world.h"

namespace tkv::exploration {

// Returns an actor that may be changed, copying it first if other worlds share it.
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
      // All copies of a client write into one target.  Restores its contents before each use.
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

// Ends the changes and computes the fingerprints of the changed actors and wires.
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
      // Only the counts of a pulled value matter, so the other elements are cleared.
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
    known_steps_->by_event.emplace(
        step_key_, Step{actors_[static_cast<size_t>(step_actor_)], std::move(step_sent_)});
  }
  step_actor_ = -1;
  step_sent_.clear();
}

// Returns a copy of the wire that may be changed.  Seal recomputes its fingerprint.
World::Wire* World::EditWire(size_t wire) {
  auto copy = std::make_shared<Wire>(*wires_[wire]);
  Wire* const edited = copy.get();
  edited->hash = {};
  wires_[wire] = std::move(copy);
  return edited;
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

}  // namespace tkv::exploration
