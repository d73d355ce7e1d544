// Changes of the updater, which all servers hear of and the head commits.

#include <algorithm>

#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

using Kind = Operation::Kind;

}  // namespace

void Client::AdvanceControl(Effects* effects) {
  while (!controls_.empty()) {
    Op* const op = Find(controls_.front());
    if (op == nullptr) {
      controls_.pop_front();
      WakeAll();
      continue;
    }
    if (op->announcing == Announcing::kWaiting) {
      if (!KnowsItsPlaces(*op)) return;
      op->has_left = true;
      op->announcing = Announcing::kSending;
      op->generation = ++generation_;
      QueueControl(op, Type::kControl);
    }
    if (op->unaccepted > 0) return;
    if (op->announcing == Announcing::kSending && op->error) {
      op->announcing = Announcing::kWithdrawing;
      QueueControl(op, Type::kWithdraw);
      if (op->unaccepted > 0) return;
    }
    if (op->announcing == Announcing::kWithdrawing) {
      Fail(op, *op->error);
      continue;
    }
    if (op->announcing == Announcing::kSending) {
      op->announcing = Announcing::kCommitting;
      Message commit;
      commit.type = Type::kCommit;
      commit.number = op->generation;
      commit.seq = op->id;
      effects->to_head.push_back(std::move(commit));
    }
    return;
  }
}

// A CONTROL says from which round on it counts, so the place in every key has to be known, and keys
// whose init was given before it have to be there.  A push of an asynchronous key has no round:
// those that were given before the CONTROL are accepted before it leaves.
bool Client::KnowsItsPlaces(const Op& control) {
  bool known = true;
  for (const KeyId& id : SortedKeys()) {
    KeyState& key = keys_.at(id);
    if (key.is_barrier) continue;
    if (IsInitedBefore(key, control)) known = false;
    if (!key.is_ready || StoreOf(key.meta.name) != control.what.store) continue;
    if (key.meta.mode == KeyMeta::Mode::kAsync) {
      if (key.pushes > 0 || QueuedPushes(key, control.id) > 0) known = false;
      continue;
    }
    if (!key.must_join) continue;
    known = false;
    MakePlaces(id, &key);
    if (CanJoin(key)) StartJoin(id, &key);
  }
  return known;
}

// Whether an init, open or delete of the key is under way or waits that was given before the
// CONTROL.
bool Client::IsInitedBefore(const KeyState& key, const Op& control) const {
  const auto is_one = [&](OpId id) {
    const Op* const op = ops_.Find(id);
    return op != nullptr && id < control.id && StoreOf(op->what.key) == control.what.store &&
           (op->what.kind == Kind::kInit || op->what.kind == Kind::kOpen ||
            op->what.kind == Kind::kDelete);
  };
  return is_one(key.opening) || std::any_of(key.queue.begin(), key.queue.end(), is_one);
}

// Pushes that have no round yet and were given before this operation.
uint64_t Client::QueuedPushes(const KeyState& key, OpId before) const {
  uint64_t count = 0;
  for (const OpId id : key.queue) {
    const Op* const op = ops_.Find(id);
    if (id < before && op != nullptr && !op->has_left && op->what.IsPush()) ++count;
  }
  return count;
}

uint64_t Client::RoundAfter(const std::string& name, OpId op) const {
  const auto key = keys_.find(IdOf(name));
  return key == keys_.end() ? 1 : key->second.round + QueuedPushes(key->second, op) + 1;
}

void Client::QueueControl(Op* op, Type type) {
  const auto servers = static_cast<uint32_t>(links_.size());
  std::vector<std::vector<ControlRounds::Item>> rounds(servers);
  for (const KeyId& id : SortedKeys()) {
    const KeyState& key = keys_.at(id);
    if (!key.is_ready || key.is_barrier) continue;
    if (StoreOf(key.meta.name) != op->what.store) continue;
    const uint64_t from_round = key.round + QueuedPushes(key, op->id) + 1;
    if (from_round == 1 && !welcome_.rejoined) continue;
    std::set<uint32_t> holders;
    for (const ChunkPlace& place : key.chunks) holders.insert(place.server);
    for (const uint32_t server : holders) rounds[server].push_back({id, from_round});
  }
  for (uint32_t server = 0; server < servers; ++server) {
    if (type == Type::kWithdraw && links_[server].dead()) continue;
    Outgoing control;
    control.op = op->id;
    control.message.type = type;
    control.message.number = op->generation;
    if (type == Type::kControl) {
      control.message.chunk = op->what.store;
      // A later life may not have asked yet for keys in which rounds are under way.
      if (welcome_.rejoined) control.message.flags = kWhenJoined;
      control.message.extra = Encode(op->what.spec);
      const size_t bytes = rounds[server].size() * sizeof(ControlRounds::Item);
      if (bytes > 0) {
        auto items = std::make_shared<std::vector<ControlRounds::Item>>(std::move(rounds[server]));
        control.message.body = {reinterpret_cast<const std::byte*>(items->data()), bytes, items};
      }
    }
    ++op->unaccepted;
    Queue(server, std::move(control));
  }
}

}  // namespace tkv
