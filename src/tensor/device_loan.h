// Memory of a device that somebody else owns.

#pragma once

#include "tkv/dlpack.h"
#include "tkv/ndarray.h"

namespace tkv {

// Checks what an array on a device says of such memory and enters with it, as a writer, what its owner
// has ordered before the device's compute stream.
//   throws  kInvalidArgument     it is not the device's, or not aligned to its elements
//           kUnimplemented       strides that are no rows at a constant distance
//           kFailedPrecondition  the compute stream is captured
//           kUnavailable, kResourceExhausted, kInternal
//   loans   that take the array; null: it is taken by itself
void BeginLoan(const NDArray& array, DLPackLoans* loans);

// The loans that take the tensor which this thread is about to wrap; null: none.  Asked once for each, before
// anything that may run the code of others.
DLPackLoans* LoansOfThread() noexcept;

}  // namespace tkv
