// The GPUs of this machine.
//
// Thread-safe.  NVIDIA's driver is loaded when a GPU is first asked for, never before.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "tkv/api.h"

namespace tkv {

// How many GPUs arrays can live on; 0 where there is no driver that can be used.
TKV_API int GpuCount();

struct GpuMemory {
  // That the driver has; blocks that this process keeps to use again are not free.
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};

//   throws  kUnimplemented, kInvalidArgument  there is no such GPU
//           kUnavailable  it is lost
TKV_API GpuMemory GpuMemoryOf(int32_t index);

// The stream, a CUstream, on which arrays of a GPU compute.  Whoever gives memory of the GPU to an array
// (FromDLPack, NDArray::Wrap) has this stream wait for all use of the memory before.
//   throws  as GpuMemoryOf
TKV_API uint64_t GpuStream(int32_t index);

// Whether work can be handed over between arrays of a GPU and a stream of others, a CUstream.
//   throws  kFailedPrecondition  the stream is captured into a CUDA graph
//           and as GpuMemoryOf
TKV_API void CheckNotCaptured(int32_t index, uint64_t stream);

// What host threads that wait for a GPU call about every 50 ms; what it throws ends the wait.  Set once,
// before GPUs are used: by a binding whose users can interrupt.
TKV_API void SetGpuInterrupt(std::function<void()> interrupt);

}  // namespace tkv
