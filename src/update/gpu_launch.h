// Runs elementwise code on a device.

#pragma once

#include <span>

#include "device/device.h"
#include "kernels/cuda/launch_table.h"
#include "kernels/elementwise.h"

namespace tkv {

// What a launch needs, made before anything is given to the device.
class GpuLaunch final {
 public:
  //   entries  together few enough for the parameter of one launch
  //   blocks   while the driver compiles the code, where the device has not had it
  //   throws   kUnimplemented, kResourceExhausted, kUnavailable, kInternal
  GpuLaunch(Device* device, const kernels::Elementwise& code,
            std::span<const kernels::cuda::Entry> entries);

  // Gives it to the device's compute stream.
  //   throws  kUnavailable, kResourceExhausted, kInternal; then nothing runs
  void Run();

 private:
  Device& device_;
  const Kernel& kernel_;
  uint32_t tiles_;
  std::vector<std::byte> table_;
};

}  // namespace tkv
