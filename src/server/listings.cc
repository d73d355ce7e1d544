#include "server/listings.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"

namespace tkv {
namespace {

constexpr size_t kKeysMax = 4096;  // keys of one LISTED, which are sorted together
constexpr int kListsAtOnce = 8;    // LISTs of a session in one event; each visits all keys
// Bytes of the keys in one LISTED.  The rest is for the workers.
constexpr size_t kItemBytesMax = kListedBytesMax * 3 / 4;

}  // namespace

void Listings::OnStatus(Session* session, const Message& message, Effects* effects) {
  const auto key = core_.keys.find(message.key);
  const auto chunk = core_.chunks.find(message.chunk_id());
  if (key == core_.keys.end() || chunk == core_.chunks.end()) {
    return replies_.AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  ChunkStatus status = core_.StatusOf(key->second, chunk->second, session->id.rank);
  const std::vector<PushStep>& steps = chunk->second.steps;
  const auto rank = static_cast<size_t>(session->id.rank);
  if ((message.flags & kInStep) != 0 && rank < steps.size()) {
    status.step = steps[rank];
    // Rounds complete without a dead worker, so that its next incarnation repeats no step.
    if (core_.epoch().policy == Epoch::Policy::kContinue) status.step->keys = 0;
  }
  Message reply = Reply(message, Type::kStatusReply, status.version);
  reply.extra = Encode(status);
  effects->Send(session->link, std::move(reply));
}

void Listings::OnList(Session* session, const Message& message, Effects* effects) {
  session->listed = session->listed_at == core_.now ? session->listed + 1 : 1;
  session->listed_at = core_.now;
  if (session->listed > kListsAtOnce) {
    return replies_.AnswerError(session, message, Code::kResourceExhausted,
                                Format("more than {} LISTs at once", kListsAtOnce), effects);
  }
  const bool is_first = message.key == KeyId{};
  std::vector<KeyId> ids;
  for (const auto& [id, key] : core_.keys) {
    if (is_first || id > message.key) ids.push_back(id);
  }
  bool has_more = ids.size() > kKeysMax;
  if (has_more) {
    std::ranges::nth_element(ids, ids.begin() + kKeysMax);
    ids.resize(kKeysMax);
  }
  std::ranges::sort(ids);
  Listed listed;
  for (const auto& [id, one] : core_.sessions.all()) {
    if (one.role == Role::kObserver) {
      ++listed.observers;
    } else if (is_first) {
      listed.workers.push_back({id.rank, id.incarnation, one.pushes, one.pushed_bytes});
    }
  }
  if (is_first) listed.memory = MemoryUse();
  Message reply = Reply(message, Type::kListed);
  std::string items;
  uint32_t count = 0;
  for (const KeyId& id : ids) {
    const std::string item = Encode(ItemOf(id, core_.keys.at(id)));
    if (items.size() + item.size() > kItemBytesMax) {
      has_more = true;
      break;
    }
    items += item;
    ++count;
    reply.key = id;
  }
  reply.number = has_more ? 1 : 0;
  reply.extra = Encode(listed, count, items);
  effects->Send(session->link, std::move(reply));
}

Listed::Item Listings::ItemOf(const KeyId& id, const StoredKey& key) const {
  Listed::Item item;
  item.meta = key.meta;
  item.has_own = item.meta.own.has_value();
  item.meta.own.reset();
  item.chunks = static_cast<uint32_t>(key.chunks.size());
  const Chunk* behind = nullptr;
  for (const uint32_t c : key.chunks) {
    const Chunk& chunk = core_.chunks.at({id, c});
    item.has_first |= c == 0;
    item.bytes += chunk.value.memory_bytes();
    item.newest = std::max(item.newest, chunk.version);
    item.waiting += chunk.parked.size();
    if (behind == nullptr || chunk.version < behind->version) behind = &chunk;
  }
  if (behind == nullptr) return item;
  item.oldest = behind->version;
  item.base = behind->base;
  const bool is_open = !behind->rounds.empty() && behind->rounds.front().count > 0;
  if (!is_open || key.meta.mode == KeyMeta::Mode::kAsync) return item;
  item.open_for =
      static_cast<uint64_t>(std::max(Time{1}, core_.now - behind->rounds.front().since));
  item.missing = core_.StatusOf(key, *behind, kNoRank).missing;
  item.missing_count = static_cast<uint32_t>(item.missing.size());
  item.missing.resize(std::min(item.missing.size(), Listed::Item::kMissingMax));
  return item;
}

Listed::Memory Listings::MemoryUse() const {
  Listed::Memory memory;
  for (const auto& [id, chunk] : core_.chunks) {
    (chunk.value.by_rows() ? memory.rows : memory.values) += chunk.value.memory_bytes();
    for (const Block& state : chunk.states) memory.state += state.size;
    memory.state += chunk.master.size;
    if (chunk.former) {
      for (const Block& state : chunk.former->states) memory.state += state.size;
      memory.state += chunk.former->master.size;
    }
    for (const Round& round : chunk.rounds) memory.sums += round.sum.memory_bytes();
  }
  memory.held = core_.held_bytes;
  memory.cuts = CutBytes();
  return memory;
}

size_t Listings::CutBytes() const {
  size_t bytes = 0;
  core_.cuts.ForEach([&](const ChunkId& id, const ChunkCut& cut) {
    std::set<const void*> shared;
    if (const Chunk* const chunk = core_.FindChunk(id)) {
      shared = {chunk->value.Read().data, chunk->master.data};
      for (const Block& state : chunk->states) shared.insert(state.data);
      if (chunk->former) {
        shared.insert(chunk->former->master.data);
        for (const Block& state : chunk->former->states) shared.insert(state.data);
      }
    }
    const auto add = [&](const Bytes& part) {
      if (!shared.contains(part.data)) bytes += part.size;
    };
    add(cut.value.Read());
    add(cut.master.bytes());
    for (const Block& state : cut.states) add(state.bytes());
  });
  return bytes;
}

}  // namespace tkv
