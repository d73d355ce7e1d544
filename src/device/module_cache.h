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
  uint32_t resident_blocks = 1;  // blocks that run at the same time on the whole device
};

// A cache of compiled kernels.  Thread-safe.  There is one kernel per form of update in a program,
// and none is ever removed.
class ModuleCache final {
 public:
  explicit ModuleCache(Device* device) : device_(*device) {}

  // Returns the kernel `name` in the PTX text of `write()`, which is called only if `key` is new.
  //   blocks  while the driver compiles
  //   throws  kUnimplemented  the driver refuses the text; with the driver's message
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
