// Arrays in and out by DLPack, versioned (1.x) and legacy.
//   source  https://github.com/dmlc/dlpack, dlpack.h 1.3

#pragma once

#include "tkv/api.h"
#include "tkv/dlpack/dlpack.h"
#include "tkv/ndarray.h"

namespace tkv {

// A view of the tensor behind `managed`, never a copy.
//   owns    on success the array owns `managed` and calls its deleter when its last handle goes;
//           after an error the caller still owns `managed`
//   throws  kInvalidArgument  a major version other than 1, a null tensor, a dtype that no array
//                             has, a shape or strides that describe no memory
//           kUnimplemented    a device on which arrays cannot live
TKV_API NDArray FromDLPack(DLManagedTensorVersioned* managed);
// The legacy form has no read-only flag: the caller knows.
TKV_API NDArray FromDLPack(DLManagedTensor* managed, bool read_only);

// A new managed tensor that shares the array's memory; whoever receives it calls its deleter once.
// Waits until the memory may be written (of a read-only array: read) and marks the storage foreign.
//   blocks, throws  as Storage::MarkForeign
TKV_API DLManagedTensorVersioned* ToDLPackVersioned(const NDArray& array);
//   throws  kInvalidArgument  the array is read-only, which the legacy form cannot say
TKV_API DLManagedTensor* ToDLPack(const NDArray& array);

// The same for a view that its maker drops before anything else happens to the array: waits as the
// access needs, marks nothing, and is read-only where it is lent for reading.
//   blocks, throws  as Storage::WaitReadable, WaitWritable
TKV_API DLManagedTensorVersioned* LendByDLPack(const NDArray& array, Access access);

TKV_API DLDevice ToDLDevice(const Context& context);

}  // namespace tkv
