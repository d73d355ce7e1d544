// Arrays in and out by DLPack, versioned (1.x) and legacy.
//   source  https://github.com/dmlc/dlpack, dlpack.h 1.3

#pragma once

#include <memory>
#include <string_view>

#include "tkv/api.h"
#include "tkv/dlpack/dlpack.h"
#include "tkv/ndarray.h"

namespace tkv {

// A view of the tensor behind `managed`, never a copy.  That of a GPU has been given to the stream
// GpuStream() before, as `__dlpack__(stream=GpuStream(i))` of Python does; see NDArray::Wrap.
//   owns    on success the array owns `managed` and calls its deleter when its last handle goes;
//           after an error the caller still owns `managed`
//   throws  kInvalidArgument  a major version other than 1, a null tensor, a dtype that no array
//                             has, a shape or strides that describe no memory
//           kUnimplemented    a device on which arrays cannot live
//           and as NDArray::Wrap
TKV_API NDArray FromDLPack(DLManagedTensorVersioned* managed);
// The legacy form has no read-only flag: the caller knows.
TKV_API NDArray FromDLPack(DLManagedTensor* managed, bool read_only);

// Checks the target of a write.  Memory of others may be constant, and strides may give two elements
// one address, as those of expanded tensors do.  `verb` begins the message, which calls the array by
// `name`.
//   throws  kInvalidArgument  the array is read-only, or two of its elements have one address
TKV_API void CheckWritable(const NDArray& array, std::string_view verb, std::string_view name);

// Tensors of GPUs that one call takes from a framework which has not ordered them before our streams, as
// the functions of DLPackExchangeAPI do not: one wait and one event for all that are ready on a stream,
// and not one of each for every tensor.
//
// Of one thread.  The tensors are used after End.
class TKV_API DLPackLoans final {
 public:
  DLPackLoans();
  ~DLPackLoans();
  DLPackLoans(const DLPackLoans&) = delete;
  DLPackLoans& operator=(const DLPackLoans&) = delete;

  // What is taken from that GPU is ready when the stream, a CUstream or one of DLPack's numbers, has done
  // what it has got; of kNoStream at once.
  //   throws  kFailedPrecondition  it is captured into a graph
  //           kUnavailable, kInternal
  void Follow(int32_t gpu, uint64_t stream);
  // The tensor of a framework that says truly which GPU it is on.
  //   owns, throws  as FromDLPack
  NDArray Take(DLManagedTensorVersioned* managed);
  //   throws  kUnavailable, kResourceExhausted, kInternal
  void End();

 private:
  friend void BeginLoan(const NDArray& array, DLPackLoans* loans);
  class Devices;
  Devices& devices();

  std::unique_ptr<Devices> devices_;  // null: no GPU has come
};

// Streams of a CUDA device that have numbers in DLPack; of any other it is its CUstream.
inline constexpr int64_t kNoStream = -1;  // nothing is waited for
inline constexpr int64_t kLegacyStream = 1;
inline constexpr int64_t kPerThreadStream = 2;

// A new managed tensor that shares the array's memory; whoever receives it calls its deleter once.
// Waits until the memory may be written (of a read-only array: read) and marks the storage foreign.
//   stream  of an array on a GPU: where the receiver goes on; it waits in the place of the host
//   blocks, throws  as Storage::MarkForeign; and of an array on a GPU
//           kInvalidArgument     stream 0 or less than -1
//           kFailedPrecondition  the stream is captured into a graph
//           kUnavailable         the GPU is lost
TKV_API DLManagedTensorVersioned* ToDLPackVersioned(const NDArray& array,
                                                    int64_t stream = kLegacyStream);
//   throws  kInvalidArgument  the array is read-only, which the legacy form cannot say
TKV_API DLManagedTensor* ToDLPack(const NDArray& array, int64_t stream = kLegacyStream);

// The same, of memory of the host, for a view that its maker drops before anything else happens to the
// array: waits as the access needs, marks nothing, and is read-only where it is lent for reading.
//   blocks, throws  as Storage::WaitReadable, WaitWritable
//           kFailedPrecondition  the memory is a device's
TKV_API DLManagedTensorVersioned* LendByDLPack(const NDArray& array, Access access);

TKV_API DLDevice ToDLDevice(const Context& context);

}  // namespace tkv
