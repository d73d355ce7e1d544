// The functions of NVIDIA's driver, libcuda.so.1, that the library calls.  They are loaded at run
// time.
//
// No part of CUDA is linked or included.  The types have the layout of cuda.h.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tkv/error.h"

namespace tkv::cuda {

using Address = uint64_t;  // in memory of a device
using DeviceHandle = int;
using ContextHandle = struct CUctx_st*;
using StreamHandle = struct CUstream_st*;
using EventHandle = struct CUevent_st*;
using ModuleHandle = struct CUmod_st*;
using FunctionHandle = struct CUfunc_st*;

// A status code of the driver; values without a name here are possible.
enum class Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kDeinitialized = 4,
  kNoDevice = 100,
  kEccUncorrectable = 214,
  kInvalidPtx = 218,
  kNvlinkUncorrectable = 220,
  kUnsupportedPtxVersion = 222,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kPeerAccessAlreadyEnabled = 704,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kCaptureImplicit = 906,
  kUnknown = 999,
};

// Returns true if every later call for the device fails, too, after such a result.
bool IsSticky(Result result) noexcept;

inline constexpr int kMultiprocessorCount = 16;  // attribute of a device
inline constexpr int kMemoryKind = 2;            // attributes of a pointer
inline constexpr int kIsManaged = 8;
inline constexpr int kDeviceOrdinal = 9;
inline constexpr int kOfDevice = 2;              // a kind of memory
inline constexpr unsigned kNonBlocking = 1;      // stream: not ordered by the legacy stream
inline constexpr unsigned kDisableTiming = 2;    // event
inline constexpr uint64_t kPerThreadStream = 2;  // a handle's value
inline constexpr unsigned kPortable = 1;         // pinned memory: of all devices
inline constexpr int kJitErrorLog = 5;           // options of a module
inline constexpr int kJitErrorLogBytes = 6;

// A copy of rows, each at a constant distance from the previous one.
struct RowPlace {
  size_t x_bytes = 0, y = 0;
  int kind = kOfDevice;
  void* host = nullptr;
  Address address = 0;
  void* array = nullptr;
  size_t pitch_bytes = 0;
};
struct RowCopy {
  RowPlace source, target;
  size_t width_bytes = 0, height = 0;
};
static_assert(sizeof(RowCopy) == 128);

// Columns: NAME, symbol, parameters.
#define TKV_DRIVER_FUNCTIONS(F)                                                                  \
  F(Init, cuInit, (unsigned flags))                                                              \
  F(DriverGetVersion, cuDriverGetVersion, (int* version))                                        \
  F(GetErrorName, cuGetErrorName, (Result, const char** name))                                   \
  F(GetErrorString, cuGetErrorString, (Result, const char** text))                               \
  F(DeviceGetCount, cuDeviceGetCount, (int* count))                                              \
  F(DeviceGet, cuDeviceGet, (DeviceHandle*, int index))                                          \
  F(DeviceGetName, cuDeviceGetName, (char* name, int bytes, DeviceHandle))                       \
  F(DeviceGetAttribute, cuDeviceGetAttribute, (int* value, int attribute, DeviceHandle))         \
  F(PrimaryContextRetain, cuDevicePrimaryCtxRetain, (ContextHandle*, DeviceHandle))              \
  F(PrimaryContextRelease, cuDevicePrimaryCtxRelease, (DeviceHandle))                            \
  F(ContextPush, cuCtxPushCurrent_v2, (ContextHandle))                                           \
  F(ContextPop, cuCtxPopCurrent_v2, (ContextHandle*))                                            \
  F(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int* can, DeviceHandle, DeviceHandle peer))     \
  F(ContextEnablePeerAccess, cuCtxEnablePeerAccess, (ContextHandle peer, unsigned flags))        \
  F(MemGetInfo, cuMemGetInfo_v2, (size_t* free, size_t* total))                                  \
  F(MemAlloc, cuMemAlloc_v2, (Address*, size_t bytes))                                           \
  F(MemFree, cuMemFree_v2, (Address))                                                            \
  F(PointerGetAttribute, cuPointerGetAttribute, (void* value, int attribute, Address))           \
  F(MemHostAlloc, cuMemHostAlloc, (void**, size_t bytes, unsigned flags))                        \
  F(MemFreeHost, cuMemFreeHost, (void*))                                                         \
  F(CopyToDevice, cuMemcpyHtoDAsync_v2, (Address, const void*, size_t bytes, StreamHandle))      \
  F(CopyToHost, cuMemcpyDtoHAsync_v2, (void*, Address, size_t bytes, StreamHandle))              \
  F(CopyWithin, cuMemcpyDtoDAsync_v2, (Address, Address, size_t bytes, StreamHandle))            \
  F(CopyToPeer, cuMemcpyPeerAsync,                                                               \
    (Address target, ContextHandle, Address source, ContextHandle, size_t bytes, StreamHandle))  \
  F(CopyRows, cuMemcpy2DAsync_v2, (const RowCopy*, StreamHandle))                                \
  F(Set8, cuMemsetD8Async, (Address, unsigned char value, size_t bytes, StreamHandle))           \
  F(StreamCreate, cuStreamCreateWithPriority, (StreamHandle*, unsigned flags, int priority))     \
  F(StreamDestroy, cuStreamDestroy_v2, (StreamHandle))                                           \
  F(StreamWaitEvent, cuStreamWaitEvent, (StreamHandle, EventHandle, unsigned flags))             \
  F(StreamIsCapturing, cuStreamIsCapturing, (StreamHandle, int* status))                         \
  F(EventCreate, cuEventCreate, (EventHandle*, unsigned flags))                                  \
  F(EventDestroy, cuEventDestroy_v2, (EventHandle))                                              \
  F(EventRecord, cuEventRecord, (EventHandle, StreamHandle))                                     \
  F(EventQuery, cuEventQuery, (EventHandle))                                                     \
  F(ModuleLoad, cuModuleLoadDataEx,                                                              \
    (ModuleHandle*, const void* image, unsigned options, int* names, void** values))             \
  F(ModuleUnload, cuModuleUnload, (ModuleHandle))                                                \
  F(ModuleGetFunction, cuModuleGetFunction, (FunctionHandle*, ModuleHandle, const char* name))   \
  F(BlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor,                        \
    (int* blocks, FunctionHandle, int threads, size_t shared_bytes))                             \
  F(Launch, cuLaunchKernel,                                                                      \
    (FunctionHandle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamHandle, void** parameters, \
     void** extra))

struct Driver {
#define TKV_DRIVER_MEMBER(name, symbol, parameters) Result(*name) parameters = nullptr;
  TKV_DRIVER_FUNCTIONS(TKV_DRIVER_MEMBER)
#undef TKV_DRIVER_MEMBER

  // Returns "CUDA_ERROR_ILLEGAL_ADDRESS (700)".
  std::string Describe(Result result) const;
};

// Loads the driver and initialises it.
//   throws  kUnimplemented  there is none, it is too old, or it knows no GPU
//           kUnavailable    it cannot be initialised
//           with a text that continues "gpu(0): "
Driver LoadDriver();

}  // namespace tkv::cuda
