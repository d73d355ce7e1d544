// Lists the events that may happen next in a world, names them for traces, and performs them.

#include "base/format.h"
#include "exploration/world.h"

namespace tkv::exploration {
namespace {

// Longest wait for an actor's next deadline, such as that of another dial, that counts as a
// possible event.  Later deadlines never come.
constexpr Time kSoon = 3 * kSecond;

}  // namespace

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
      if (incarnation == 0) {  // the worker continues and does not know of it
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
