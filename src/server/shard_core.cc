#include "server/shard_core.h"

#include <algorithm>

#include "base/check.h"

namespace tkv {

const Chunk* ShardCore::FindChunk(const ChunkId& id) const {
  const auto found = chunks.find(id);
  return found == chunks.end() ? nullptr : &found->second;
}

const StoredKey* ShardCore::FindKey(const KeyId& id) const {
  const auto found = keys.find(id);
  return found == keys.end() ? nullptr : &found->second;
}

bool ShardCore::HasClosed(Rank rank, uint32_t store) const {
  if (!half_closed.contains(store)) return false;
  const Session* const session =
      sessions.Find({rank, epoch().workers[static_cast<size_t>(rank)].incarnation});
  return session != nullptr && session->closed.Has(store);
}

bool ShardCore::IsAwaited(const StoredKey& key, Rank rank) const {
  return epoch().IsMember(rank) &&
         (epoch().policy != Epoch::Policy::kContinue || !HasClosed(rank, key.store));
}

ChunkStatus ShardCore::StatusOf(const StoredKey& key, const Chunk& chunk, Rank rank) const {
  ChunkStatus status;
  status.version = chunk.version;
  status.base = chunk.base;
  status.last_arrived = rank == kNoRank ? chunk.version : key.LastCovered(chunk, rank);
  if (chunk.value.by_rows()) status.table = chunk.value.rows().Stats();
  if (key.meta.mode == KeyMeta::Mode::kAsync) return status;
  for (Rank r = 0; static_cast<size_t>(r) < epoch().workers.size(); ++r) {
    if (IsAwaited(key, r) && key.AbstainOf(r) <= chunk.version &&
        !chunk.HasArrived(chunk.version + 1, r)) {
      status.missing.push_back(r);
    }
  }
  return status;
}

void ShardCore::ForgetDescribe(Session* session, uint64_t seq) {
  if (describes.Remove({session->id, seq})) Drop(&session->parked);
}

void ShardCore::UnparkAll(Session* session) {
  if (session->parked == 0) return;
  for (auto& [chunk_id, chunk] : chunks) {
    std::erase_if(chunk.parked,
                  [&](const ParkedPull& pull) { return pull.session == session->id; });
  }
  describes.RemoveAllOf(session->id);
  session->parked = session->parked_bytes = 0;
}

void ShardCore::CloseLink(LinkId link) {
  hellos.erase(link);
  if (Session* const session = sessions.Of(link)) UnparkAll(session);
  sessions.Close(link);
}

}  // namespace tkv
