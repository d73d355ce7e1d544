// Random numbers that depend on nothing but where they are drawn, so that a value has the same ones in
// any chunks, on any server and on any number of threads.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tkv/dtype.h"
#include "tkv/key.h"

namespace tkv {

// Philox4x32-10.
//   source  Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A number of the key for Normals: that of its text or number, whatever the store.
uint64_t StreamOf(const KeyView& key) noexcept;

struct DrawPlace {
  uint64_t stream = 0;  // of the key
  uint64_t begin = 0;   // of the first element in the value
};

struct Draw {
  double seed = 0;
  double count = 0;     // of updates, as a program gives it
  uint32_t number = 0;  // of the draw in its program
};

// Standard normal numbers by Box and Muller: element i and its neighbour i ^ 1 share a block of Philox.
//   shape  out: f32 or f64 as `dtype` says
void DrawNormals(DType dtype, const DrawPlace& place, const Draw& draw, void* out, size_t count);

}  // namespace tkv
