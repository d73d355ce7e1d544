// Runs elementwise code on a device.

#pragma once

#include "device/device.h"
#include "kernels/cuda/launch_table.h"
#include "kernels/elementwise.h"
#include "tkv/ndarray.h"

namespace tkv {

// A launch, with all its resources prepared before any work is given to the device.
class GpuLaunch final {
 public:
  //   blocks   while the driver compiles code that is new to the device
  //   throws   kUnimplemented, kResourceExhausted, kUnavailable, kInternal
  GpuLaunch(Device* device, const kernels::Elementwise& code,
            const kernels::cuda::LaunchTable& table);

  // Returns the device memory of a table that is too long for the kernel parameter, or null.  The
  // launch reads it in addition to the arrays of its entries.
  const NDArray& table_memory() const noexcept { return table_memory_; }

  // Gives the launch to the device's compute stream.
  //   throws  kUnavailable, kResourceExhausted, kInternal; then the launch does not run
  void Run();

 private:
  Device& device_;
  const Kernel* kernel_ = nullptr;
  uint32_t tiles_ = 0;
  std::vector<std::byte> parameter_;
  NDArray table_memory_;
};

}  // namespace tkv
