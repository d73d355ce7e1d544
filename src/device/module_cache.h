// Kernels that the driver has compiled for a device.

#pragma once

#include <map>
#include <mutex>
#include <string>

#include "device/driver.h"

namespace tkv {

class Device;

struct Kernel {
  cuda::FunctionHandle function = nullptr;
  uint32_t resident_blocks = 1;  // that run at a time on the whole device
};

// Thread-safe.  Kernels are as many as the forms of update that a program has, and stay.
class ModuleCache final {
 public:
  explicit ModuleCache(Device* device) : device_(*device) {}

  // The kernel `name` in the PTX that `write()` returns, which is called where `key` is new.
  //   blocks  while the driver compiles
  //   throws  kUnimplemented  the driver refuses the text; with what it says
  //           kResourceExhausted, kUnavailable, kInternal
  template <typename Write>
  const Kernel& Find(const std::string& key, const char* name, int block_threads, Write write) {
    std::lock_guard lock(mutex_);
    const auto found = kernels_.find(key);
    if (found != kernels_.end()) return found->second;
    return Add(key, Load(write(), name, block_threads));
  }

 private:
  struct Loaded {
    cuda::ModuleHandle module = nullptr;
    Kernel kernel;
  };

  Loaded Load(const std::string& text, const char* name, int block_threads);
  const Kernel& Add(const std::string& key, const Loaded& loaded);

  Device& device_;
  std::mutex mutex_;
  std::map<std::string, Kernel> kernels_;
};

}  // namespace tkv
