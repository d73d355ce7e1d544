// Arrays in and out by DLPack, versioned (1.x) and legacy.
//   source  https://github.com/dmlc/dlpack, dlpack.h 1.3

#pragma once

#include "tkv/dlpack/dlpack.h"
#include "tkv/ndarray.h"

namespace tkv {

// A view of the tensor behind `managed`, never a copy.
//   owns    on success the array owns `managed` and calls its deleter when its last handle goes;
//           after an error the caller still owns `managed`
//   throws  kInvalidArgument  a major version other than 1, a null tensor, a dtype that no array
//                             has, a shape or strides that describe no memory
//           kUnimplemented    a device on which arrays cannot live
NDArray FromDLPack(DLManagedTensorVersioned* managed);
// The legacy form has no read-only flag: the caller knows.
NDArray FromDLPack(DLManagedTensor* managed, bool read_only);

// A new managed tensor that shares the array's memory; whoever receives it calls its deleter once.
// Waits for pending writers and marks the storage foreign.
DLManagedTensorVersioned* ToDLPackVersioned(const NDArray& array);
//   throws  kInvalidArgument  the array is read-only, which the legacy form cannot say
DLManagedTensor* ToDLPack(const NDArray& array);

DLDevice ToDLDevice(const Context& context);

}  // namespace tkv
