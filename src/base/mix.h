// What rows are called inside: the mix of an id, which spreads ids evenly over 64 bits.  Rows are kept
// and sent in ascending order of their mixes, whose equal parts hold about equally many.

#pragma once

#include <cstdint>

#include "base/random.h"

namespace tkv {

// A bijection.
inline uint64_t Mix(uint64_t id) { return Random::Mix(id); }

// The id whose mix it is.
inline uint64_t Unmix(uint64_t mix) {
  mix = (mix ^ (mix >> 31) ^ (mix >> 62)) * 0x319642B2D24D8EC3u;
  mix = (mix ^ (mix >> 27) ^ (mix >> 54)) * 0x96DE1B173F119089u;
  return mix ^ (mix >> 30) ^ (mix >> 60);
}

// Buckets are equal parts of the mixes, in ascending order.
inline uint32_t BucketOf(uint64_t mix, uint32_t buckets) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint32_t>(static_cast<Wide>(mix) * buckets >> 64);
}

}  // namespace tkv
