// Where an array lives.

#pragma once

#include <cstdint>
#include <string>

#include "tkv/api.h"

namespace tkv {

enum class DeviceKind : uint8_t { kCpu = 1, kGpu = 2 };  // wire value: never renumber

// Every cpu(i) is host memory; the index only says which worker the value stands for.
struct TKV_API Context {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t index = 0;

  static Context Cpu(int32_t index = 0) noexcept { return {DeviceKind::kCpu, index}; }
  static Context Gpu(int32_t index = 0) noexcept { return {DeviceKind::kGpu, index}; }
  bool operator==(const Context&) const noexcept = default;
  std::string ToString() const;  // "cpu(0)"
};

struct Memory;

// The memory that arrays of a context lie in.
TKV_API Memory MemoryOf(const Context& context) noexcept;

// Whether arrays can live in `context`.
//   throws  kInvalidArgument     a negative index, or the machine has fewer GPUs
//           kUnimplemented       the machine has no driver of GPUs that can be used
//           kUnavailable         the GPU is lost, or its driver does not start
//           kFailedPrecondition  the process was forked from one that uses GPUs
TKV_API void CheckUsable(const Context& context);

}  // namespace tkv
