// Foreign memory of a device in arrays.

#pragma once

#include "tkv/dlpack.h"
#include "tkv/ndarray.h"

namespace tkv {

// Checks the layout and address of an array in foreign device memory.  Registers an event with it,
// as a writer, for all work that its owner has ordered before the device's compute stream.
//   throws  kInvalidArgument     it is not the device's, or not aligned to its elements
//           kUnimplemented       strides that are no rows at a constant distance
//           kFailedPrecondition  the compute stream is captured
//           kUnavailable, kResourceExhausted, kInternal
//   loans   collects the array for its End; null: the event is registered at once
void BeginLoan(const NDArray& array, DLPackLoans* loans);

// Returns the DLPackLoans that collect the tensor which this thread is about to wrap, or null, and
// resets them.  Call it once per tensor, before anything that may run foreign code.
DLPackLoans* LoansOfThread() noexcept;

}  // namespace tkv
