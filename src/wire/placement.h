// The assignment of chunks to servers.

#pragma once

#include <cstdint>
#include <vector>

#include "wire/key_id.h"

namespace tkv {

// A map of slots to servers.  A chunk always belongs to the same slot; the coordinator (`head`)
// decides which server has a slot.  Neighbouring chunks have neighbouring slots, so that a key of
// many chunks loads all servers alike.
struct Placement {              // in EPOCH
  uint64_t number = 0;          // grows with each change
  uint32_t servers = 0;         // 0: unknown yet
  std::vector<uint32_t> slots;  // the server of each slot; empty: slot modulo `servers`
  bool operator==(const Placement&) const = default;
};

inline constexpr uint32_t kSlots = 4096;
inline uint32_t SlotOf(const KeyId& id, uint32_t chunk) noexcept {
  return static_cast<uint32_t>((id.low + chunk) % kSlots);
}

// Returns the server that has a chunk.  The placement must be known (`servers` > 0).
inline uint32_t ServerOf(const Placement& placement, const KeyId& id, uint32_t chunk) noexcept {
  const uint32_t slot = SlotOf(id, chunk);
  return placement.slots.empty() ? slot % placement.servers : placement.slots[slot];
}

}  // namespace tkv
