// Copies between a strided array and a contiguous one.

#pragma once

#include <cstddef>

#include "tkv/shape.h"

namespace tkv {

// Both walk the elements of `shape` in C order; strides are in elements of `item` bytes.
void PackStrided(const void* source, const Shape& shape, const int64_t* strides, size_t item,
                 void* target);
void ScatterStrided(const void* source, void* target, const Shape& shape, const int64_t* strides,
                    size_t item);

// Whether strides describe C order without holes (axes of extent 1 do not matter).
bool IsContiguous(const Shape& shape, const int64_t* strides);

// The range of elements that strides reach, relative to the first one: low <= 0 < high; empty for
// an empty shape.
struct StridedExtent {
  int64_t low = 0;
  int64_t high = 0;
};
StridedExtent ExtentOf(const Shape& shape, const int64_t* strides);

}  // namespace tkv
