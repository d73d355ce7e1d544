// Draws random numbers that depend only on their position.  So a value gets the same numbers for
// any chunks, on any server, and on any number of threads.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tkv/dtype.h"
#include "tkv/key.h"

namespace tkv {

// Computes one block of Philox4x32-10.
//   source  Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Returns the stream of a key: a hash of its text or number, the same in every store.
uint64_t StreamOf(const KeyView& key) noexcept;

struct DrawPosition {
  uint64_t stream = 0;  // stream of the key
  uint64_t begin = 0;   // index of the first element in the value
};

struct Draw {
  double seed = 0;
  double count = 0;     // number of updates, as the program passes it
  uint32_t number = 0;  // number of the draw in its program
};

// Draws standard normal numbers by Box and Muller.  Element i and its neighbour i ^ 1 share a block
// of Philox.
//   shape  out: f32 or f64, given by `dtype`
void DrawNormals(DType dtype, const DrawPosition& place, const Draw& draw, void* out, size_t count);

}  // namespace tkv
