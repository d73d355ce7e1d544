// Memory of a device that somebody else owns.

#pragma once

#include "tkv/ndarray.h"

namespace tkv {

// Checks what an array on a device says of such memory and enters with it, as a writer, what its owner
// has ordered before the device's compute stream.
//   throws  kInvalidArgument     it is not the device's, or not aligned to its elements
//           kUnimplemented       strides that are no rows at a constant distance
//           kFailedPrecondition  the compute stream is captured
//           kUnavailable, kResourceExhausted, kInternal
void BeginLoan(const NDArray& array);

}  // namespace tkv
