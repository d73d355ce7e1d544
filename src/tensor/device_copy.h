// Copies from, to and between devices.  They look after the hazards of the arrays, which lie in rows at
// one distance where they are a device's.

#pragma once

#include "tkv/ndarray.h"

namespace tkv {

inline bool IsOfDevice(const NDArray& array) {
  return array.storage()->memory().kind == Memory::Kind::kDevice;
}

// Arrays of one shape and dtype, of which one at least is a device's.
//   throws  kUnavailable, kResourceExhausted, kInternal, kDeadlineExceeded; then the target is as it was,
//           or its device is lost
void CopyByDevice(const NDArray& source, const NDArray& target);

// From host memory that has been read when the call returns, to an array that is contiguous.
void CopyToDevice(const void* source, const NDArray& target);

// A new array with the elements of a device's.
NDArray CopyOnHost(const NDArray& source, Context context);

void ZeroOnDevice(const NDArray& target);

}  // namespace tkv
