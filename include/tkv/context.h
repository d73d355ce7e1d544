// The device on which an array lives.

#pragma once

#include <cstdint>
#include <string>

#include "tkv/api.h"

namespace tkv {

enum class DeviceKind : uint8_t { kCpu = 1, kGpu = 2 };  // wire value: never renumber

// A device: cpu(i) or gpu(i).  Every cpu(i) is host memory; its index only tells which worker the
// value stands for.
struct TKV_API Context {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t index = 0;

  static Context Cpu(int32_t index = 0) noexcept { return {DeviceKind::kCpu, index}; }
  static Context Gpu(int32_t index = 0) noexcept { return {DeviceKind::kGpu, index}; }
  bool operator==(const Context&) const noexcept = default;
  std::string ToString() const;  // "cpu(0)"
};

struct Memory;

// Returns the kind of memory in which arrays of this context lie.
TKV_API Memory MemoryOf(const Context& context) noexcept;

// Throws if arrays cannot live on `context`.
//   throws  kInvalidArgument     a negative index, or the machine has too few GPUs
//           kUnimplemented       the machine has no usable GPU driver
//           kUnavailable         the GPU is lost, or its driver does not start
//           kFailedPrecondition  the process was forked from one that uses GPUs
TKV_API void CheckUsable(const Context& context);

}  // namespace tkv
