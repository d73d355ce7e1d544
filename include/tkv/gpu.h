// The GPUs of this machine.
//
// Thread-safe.  NVIDIA's driver is loaded when a GPU is first asked for, never before.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "tkv/api.h"

namespace tkv {

// Returns how many GPUs arrays can live on; 0 if there is no usable driver.
TKV_API int GpuCount();

struct GpuMemory {
  // Free memory as the driver counts it.  Blocks that this process keeps for reuse are not free.
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};

// Returns the memory of one GPU.
//   throws  kUnimplemented, kInvalidArgument  there is no such GPU
//           kUnavailable  it is lost
TKV_API GpuMemory GpuMemoryOf(int32_t index);

// Returns the stream, a CUstream, on which arrays of a GPU compute.  Before a caller wraps GPU
// memory in an array (FromDLPack, NDArray::Wrap), it must make this stream wait for all earlier use
// of that memory.
//   throws  as GpuMemoryOf
TKV_API uint64_t GpuStream(int32_t index);

// Checks that arrays of a GPU can be handed over to, or taken from, another stream, a CUstream.
//   throws  kFailedPrecondition  the stream is captured into a CUDA graph
//           and as GpuMemoryOf
TKV_API void CheckNotCaptured(int32_t index, uint64_t stream);

// Sets the function that host threads call about every 50 ms while they wait for a GPU.  An
// exception from it ends the wait.  A binding whose users can interrupt sets it once, before GPUs
// are used.
TKV_API void SetGpuInterrupt(std::function<void()> interrupt);

}  // namespace tkv
