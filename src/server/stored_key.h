// A key on its shard: its shape, its rules that wait for their rounds, and the ranks that abstain.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/chunk.h"

namespace tkv {

inline constexpr uint32_t kNoStore = UINT32_MAX;  // a barrier whose first push named no store

struct StoredKey {
  KeyMeta meta;
  RulePtr own;                                     // the key's own rule; no CONTROL changes it
  std::vector<std::pair<Rank, uint64_t>> abstain;  // last round in which a rank takes no part
  struct Pending {        // a CONTROL that some chunks of the key have not applied
    uint64_t number = 0;  // in the order of arrival at this shard
    uint64_t from_round = 0;
    RulePtr rule;
  };
  std::vector<Pending> pending;
  std::vector<uint32_t> chunks;  // chunks on this shard
  bool is_barrier = false;
  uint32_t store = kNoStore;
  // Births that a later INIT of the same shape replaced before the first round.  Workers that
  // know one of them may use this key.
  std::vector<uint64_t> former_births;
  // The rounds of a barrier that ended with an error, the last kFailuresMax of them.  A worker
  // that passes its barriers again gets the same errors.
  static constexpr size_t kFailuresMax = 64;
  std::vector<std::pair<uint64_t, Error>> failures;

  // Returns the last round in which a rank takes no part, or 0.
  uint64_t AbstainOf(Rank rank) const;
  // Returns the last round without a gap that has a push of the rank, or from which it abstains.
  uint64_t LastCovered(const Chunk& chunk, Rank rank) const;
  // Returns false if a message is meant for an earlier key of this name, deleted since.
  bool IsMeantBy(const Message& message) const;
  // Keeps the error of a barrier's round that has just completed.
  void KeepFailure(const Chunk& chunk);
  // Returns the error of a round of this chunk, or null.  If the key is no barrier, only the newest
  // round's error is known.
  const Error* FailureOf(const Chunk& chunk, uint64_t round) const;
};

}  // namespace tkv
