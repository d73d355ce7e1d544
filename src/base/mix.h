// The mix of a row id: a hash that spreads ids evenly over 64 bits and can be undone.  Rows are
// kept and sent in ascending order of their mixes.  Equal parts of the range of mixes hold about
// equally many rows.

#pragma once

#include <cstdint>

#include "base/random.h"

namespace tkv {

// Returns the mix of an id.  A bijection.
inline uint64_t Mix(uint64_t id) { return Random::Mix(id); }

// Returns the id of a mix.
inline uint64_t Unmix(uint64_t mix) {
  mix = (mix ^ (mix >> 31) ^ (mix >> 62)) * 0x319642B2D24D8EC3u;
  mix = (mix ^ (mix >> 27) ^ (mix >> 54)) * 0x96DE1B173F119089u;
  return mix ^ (mix >> 30) ^ (mix >> 60);
}

// Returns the bucket of a mix.  Buckets are equal parts of the range of mixes, in ascending order.
inline uint32_t BucketOf(uint64_t mix, uint32_t buckets) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint32_t>(static_cast<Wide>(mix) * buckets >> 64);
}

}  // namespace tkv
