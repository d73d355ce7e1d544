#include "server/stored_key.h"

#include <algorithm>

namespace tkv {

uint64_t StoredKey::AbstainOf(Rank rank) const {
  for (const auto& [r, upto] : abstain) {
    if (r == rank) return upto;
  }
  return 0;
}

uint64_t StoredKey::LastCovered(const Chunk& chunk, Rank rank) const {
  uint64_t last = std::max(AbstainOf(rank), chunk.LastArrived(rank));
  while (chunk.HasArrived(last + 1, rank)) ++last;
  return last;
}

bool StoredKey::IsMeantBy(const Message& message) const {
  if ((message.flags & kOfBirth) == 0 || message.need == meta.birth) return true;
  return std::find(former_births.begin(), former_births.end(), message.need) != former_births.end();
}

void StoredKey::KeepFailure(const Chunk& chunk) {
  if (!is_barrier || !chunk.failure) return;
  if (failures.size() >= kFailuresMax) failures.erase(failures.begin());
  failures.emplace_back(chunk.version, *chunk.failure);
}

const Error* StoredKey::FailureOf(const Chunk& chunk, uint64_t round) const {
  if (round == chunk.version) return chunk.failure ? &*chunk.failure : nullptr;
  for (const auto& [failed, error] : failures) {
    if (failed == round) return &error;
  }
  return nullptr;
}

}  // namespace tkv
