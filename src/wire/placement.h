// Where the chunks of keys live.

#pragma once

#include <cstdint>
#include <vector>

#include "wire/key_id.h"

namespace tkv {

// A chunk belongs to a slot for good; the head says which server has a slot.  Slots are dealt
// round-robin, so that a key of many chunks loads all servers alike.
struct Placement {              // in EPOCH
  uint64_t number = 0;          // grows with each change
  uint32_t servers = 0;         // 0: not known yet
  std::vector<uint32_t> slots;  // the server of each slot; empty: slot modulo `servers`
  bool operator==(const Placement&) const = default;
};

inline constexpr uint32_t kSlots = 4096;
inline uint32_t SlotOf(const KeyId& id, uint32_t chunk) noexcept {
  return static_cast<uint32_t>((id.low + chunk) % kSlots);
}

// The server that has a chunk; only for a placement that is known.
inline uint32_t ServerOf(const Placement& placement, const KeyId& id, uint32_t chunk) noexcept {
  const uint32_t slot = SlotOf(id, chunk);
  return placement.slots.empty() ? slot % placement.servers : placement.slots[slot];
}

}  // namespace tkv
