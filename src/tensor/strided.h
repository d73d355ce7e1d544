// Copies between strided and contiguous arrays.

#pragma once

#include <cstddef>
#include <optional>

#include "tkv/ndarray.h"

namespace tkv {

// Both walk the elements of `shape` in C order; strides are in elements of `item` bytes.
void PackStrided(const void* source, const Shape& shape, const int64_t* strides, size_t item,
                 void* target);
void ScatterStrided(const void* source, void* target, const Shape& shape, const int64_t* strides,
                    size_t item);

// Copies all elements between arrays of one shape and dtype without a look at their hazards: for an
// operation that is itself the pending writer of `target`.
void CopyElements(const NDArray& source, const NDArray& target);

// `source` in C order for an operation that writes `target`, which is contiguous, from front to
// back: a copy where `source` is strided, and where the two have bytes in common but are not the
// same elements, because the operation would read what it has just written.
NDArray PackedBeside(const NDArray& source, const NDArray& target);

// Whether strides describe C order without holes (axes of extent 1 do not matter).
bool IsContiguous(const Shape& shape, const int64_t* strides);

// The range of elements that strides reach, relative to the first one: low <= 0 < high; empty for
// an empty shape.
struct StridedExtent {
  int64_t low = 0;
  int64_t high = 0;
};
StridedExtent ExtentOf(const Shape& shape, const int64_t* strides);

// Returns true if two elements of an array have one address.  The search is bounded: it ends with false
// for axes that are made to take long.
bool HasSharedElements(const Shape& shape, const int64_t* strides);

// Elements in C order whose rows, each without holes, are at a constant distance from each other: what a
// device copies at once.
struct PitchedRows {
  int64_t count = 1;
  int64_t length = 1;  // elements of a row
  int64_t pitch = 1;   // elements from a row to the next, at least `length`
};

// None where the strides are others; the shape has elements.
std::optional<PitchedRows> RowsOf(const Shape& shape, const int64_t* strides);

}  // namespace tkv
