// Copies from, to and between devices.  They look after the hazards of the arrays, which lie in rows at
// one distance where they are a device's.

#pragma once

#include "tensor/on_device.h"

namespace tkv {

// Whether kernels of a device read and write an array in its place: contiguous, there or on a device that it
// reaches.
//   throws  as Device::Reaches
bool IsReachedBy(Device* device, const NDArray& array);
// The array where it is reached, else a copy on the device.
//   throws  as IsReachedBy and copies
NDArray ReachedBy(Device* device, const NDArray& array);

// Arrays of one shape and dtype, of which one at least is a device's.
//   throws  kUnavailable, kResourceExhausted, kInternal, kDeadlineExceeded; then the target is as it was,
//           or its device is lost
void CopyByDevice(const NDArray& source, const NDArray& target);

// From host memory that has been read when the call returns, to an array that is contiguous.
void CopyToDevice(const void* source, const NDArray& target);

// Gives a stream a copy between two arrays of its device that do not overlap, one of which is not
// contiguous; the caller has entered them.
//   throws  kUnavailable, kInternal
void GiveRowCopy(Stream* stream, const NDArray& source, const NDArray& target);

// A new array with the elements of a device's.
NDArray CopyOnHost(const NDArray& source, Context context);

void ZeroOnDevice(const NDArray& target);

}  // namespace tkv
