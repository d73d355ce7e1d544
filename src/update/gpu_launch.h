// Runs elementwise code on a device.

#pragma once

#include "device/device.h"
#include "kernels/cuda/launch_table.h"
#include "kernels/elementwise.h"
#include "tkv/ndarray.h"

namespace tkv {

// What a launch needs, made before anything is given to the device.
class GpuLaunch final {
 public:
  //   blocks   while the driver compiles the code, where the device has not had it
  //   throws   kUnimplemented, kResourceExhausted, kUnavailable, kInternal
  GpuLaunch(Device* device, const kernels::Elementwise& code,
            const kernels::cuda::LaunchTable& table);

  // What the launch reads beside what its entries name: a table that is too long for the parameter;
  // null where it is not.
  const NDArray& table_memory() const noexcept { return table_memory_; }

  // Gives it to the device's compute stream.
  //   throws  kUnavailable, kResourceExhausted, kInternal; then nothing runs
  void Run();

 private:
  Device& device_;
  const Kernel* kernel_ = nullptr;
  uint32_t tiles_ = 0;
  std::vector<std::byte> parameter_;
  NDArray table_memory_;
};

}  // namespace tkv
