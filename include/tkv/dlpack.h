// Arrays in and out by DLPack, versioned (1.x) and legacy.
//   source  https://github.com/dmlc/dlpack, dlpack.h 1.3

#pragma once

#include <memory>
#include <string_view>

#include "tkv/api.h"
#include "tkv/dlpack/dlpack.h"
#include "tkv/ndarray.h"

namespace tkv {

// Returns a view of the tensor behind `managed`, never a copy.  If the tensor is on a GPU, the
// caller must first make the stream GpuStream() wait for it.  In Python,
// `__dlpack__(stream=GpuStream(i))` does so; see NDArray::Wrap.
//   owns    on success the array owns `managed`, and calls its deleter when the last handle on it
//           is destroyed; after an error the caller still owns `managed`
//   throws  kInvalidArgument  a major version other than 1, a null tensor, a dtype that no array
//                             has, a shape or strides that describe no memory
//           kUnimplemented    a device on which arrays cannot live
//           and as NDArray::Wrap
TKV_API NDArray FromDLPack(DLManagedTensorVersioned* managed);
// The same for the legacy form.  The caller passes `read_only`, because that form has no such flag.
TKV_API NDArray FromDLPack(DLManagedTensor* managed, bool read_only);

// Checks that an array can be the target of a write.  Foreign memory may be constant, and its
// strides may give two elements the same address, as in expanded tensors.  The message begins with
// `verb` and calls the array `name`.
//   throws  kInvalidArgument  the array is read-only, or two of its elements have one address
TKV_API void CheckWritable(const NDArray& array, std::string_view verb, std::string_view name);

// Imports many GPU tensors of one call whose framework has not yet made GpuStream() wait for them.
// The functions of DLPackExchangeAPI give such tensors.  All tensors that are ready on the same
// stream share one wait and one event, instead of one of each per tensor.
//
// Not thread-safe: one thread uses the object.  The tensors may be used only after End.
class TKV_API DLPackLoans final {
 public:
  DLPackLoans();
  ~DLPackLoans();
  DLPackLoans(const DLPackLoans&) = delete;
  DLPackLoans& operator=(const DLPackLoans&) = delete;

  // Names a stream (a CUstream or one of DLPack's numbers) on which tensors of that GPU are being
  // computed.  They are ready when the stream has done all work given to it so far.  With kNoStream
  // they are ready already.
  //   throws  kFailedPrecondition  the stream is captured into a graph
  //           kUnavailable, kInternal
  void Follow(int32_t gpu, uint64_t stream);
  // Imports one tensor; its framework has to name the right GPU, as this is not checked.
  //   owns, throws  as FromDLPack
  NDArray Take(DLManagedTensorVersioned* managed);
  // Makes the GPUs wait for the streams of Follow before any later use of the tensors.
  //   throws  kUnavailable, kResourceExhausted, kInternal
  void End();

 private:
  friend void BeginLoan(const NDArray& array, DLPackLoans* loans);
  class Devices;
  Devices& devices();

  std::unique_ptr<Devices> devices_;  // null: no GPU was named yet
};

// Streams of a CUDA device that have fixed numbers in DLPack; any other number is a CUstream.
inline constexpr int64_t kNoStream = -1;  // no wait
inline constexpr int64_t kLegacyStream = 1;
inline constexpr int64_t kPerThreadStream = 2;

// Returns a new managed tensor that shares the array's memory; the receiver calls its deleter once.
// First waits until the memory may be written (read, if the array is read-only), and marks the
// storage as foreign.
//   stream  for an array on a GPU, the stream on which the receiver continues; it waits instead of
//           the host
//   blocks, throws  as Storage::MarkForeign; and for an array on a GPU
//           kInvalidArgument     stream 0 or less than -1
//           kFailedPrecondition  the stream is captured into a graph
//           kUnavailable         the GPU is lost
TKV_API DLManagedTensorVersioned* ToDLPackVersioned(const NDArray& array,
                                                    int64_t stream = kLegacyStream);
// The same in the legacy form.
//   throws  kInvalidArgument  the array is read-only, which the legacy form cannot express
TKV_API DLManagedTensor* ToDLPack(const NDArray& array, int64_t stream = kLegacyStream);

// Returns a view of host memory for a receiver that drops it before any other use of the array.
// Waits as `access` needs, but does not mark the storage as foreign.  The view is read-only if
// `access` is kRead or the array is read-only.
//   blocks, throws  as Storage::WaitReadable, WaitWritable
//           kFailedPrecondition  the memory is a device's
TKV_API DLManagedTensorVersioned* LendByDLPack(const NDArray& array, Access access);

TKV_API DLDevice ToDLDevice(const Context& context);

}  // namespace tkv
