// Copies between strided and contiguous arrays.

#pragma once

#include <cstddef>
#include <optional>

#include "tkv/ndarray.h"

namespace tkv {

// Copy elements in C order of `shape`: PackStrided from strided to contiguous memory,
// ScatterStrided back.  Strides are in elements of `item` bytes.
void PackStrided(const void* source, const Shape& shape, const int64_t* strides, size_t item,
                 void* target);
void ScatterStrided(const void* source, void* target, const Shape& shape, const int64_t* strides,
                    size_t item);

// Copies all elements between arrays of one shape and dtype.  Ignores hazards, for an operation
// that is itself the pending writer of `target`.
void CopyElements(const NDArray& source, const NDArray& target);

// Returns `source` in C order, for an operation that reads it while it writes the contiguous
// `target` from front to back.  Copies if `source` is strided.  Copies also if both overlap but are
// not the same elements, because the operation would then read elements that it has just written.
NDArray PackedBeside(const NDArray& source, const NDArray& target);

// Returns true if strides describe C order without holes (axes of extent 1 do not matter).
bool IsContiguous(const Shape& shape, const int64_t* strides);

// The range of elements that strides reach, relative to the first one: low <= 0 < high; empty for
// an empty shape.
struct StridedExtent {
  int64_t low = 0;
  int64_t high = 0;
};
StridedExtent ExtentOf(const Shape& shape, const int64_t* strides);

// Returns true if two elements of an array have one address.  The search is bounded: for axes that
// are designed to take long, it gives up and returns false.
bool HasSharedElements(const Shape& shape, const int64_t* strides);

// Elements in C order, in rows without holes at a constant distance from each other.  A device can
// copy these in one operation.
struct PitchedRows {
  int64_t count = 1;
  int64_t length = 1;  // elements of a row
  int64_t pitch = 1;   // elements from a row to the next, at least `length`
};

// Returns none if the strides have another form.  The shape must have elements.
std::optional<PitchedRows> RowsOf(const Shape& shape, const int64_t* strides);

}  // namespace tkv
