// Copies from, to and between devices.  They respect the hazards of the arrays.  An array on a
// device must consist of rows at a constant distance.

#pragma once

#include "tensor/on_device.h"

namespace tkv {

// Returns true if kernels of a device can directly read and write an array.  The array must be
// contiguous and on this device, or be allocated by this library on a device that this one reaches.
//   throws  as Device::Reaches
bool IsReachedBy(Device* device, const NDArray& array);
// Returns the array if IsReachedBy is true, else a copy on the device.
//   throws  as IsReachedBy and copies
NDArray ReachedBy(Device* device, const NDArray& array);

// Copies between arrays of one shape and dtype, of which at least one is on a device.
//   throws  kUnavailable, kResourceExhausted, kInternal, kDeadlineExceeded; then the target is
//           unchanged, or its device is lost
void CopyByDevice(const NDArray& source, const NDArray& target);

// Copies host memory to a contiguous array.  The source has been read when the call returns.
void CopyToDevice(const void* source, const NDArray& target);

// Gives a stream a copy between two arrays of its device that do not overlap and of which one is
// not contiguous.  The caller has registered the work with them.
//   throws  kUnavailable, kInternal
void GiveRowCopy(Stream* stream, const NDArray& source, const NDArray& target);

// Returns a new array on the host with the elements of an array on a device.
NDArray CopyOnHost(const NDArray& source, Context context);

void ZeroOnDevice(const NDArray& target);

}  // namespace tkv
