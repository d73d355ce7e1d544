#include "device/module_cache.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "device/device.h"

namespace tkv {
namespace {

cuda::Result LoadText(Device* device, const std::string& text, std::string* log,
                      cuda::ModuleHandle* module) {
  std::array names = {cuda::kJitErrorLog, cuda::kJitErrorLogBytes};
  // The driver takes a number in place of a pointer.
  void* const bytes = reinterpret_cast<void*>(log->size());  // NOLINT(performance-no-int-to-ptr)
  std::array<void*, 2> values = {log->data(), bytes};
  const cuda::Result result =
      device->Call(device->driver().ModuleLoad, module, static_cast<const void*>(text.c_str()),
                   static_cast<unsigned>(names.size()), names.data(), values.data());
  log->resize(std::min(log->find('\0'), log->size()));
  return result;
}

bool IsRefusal(cuda::Result result) {
  return result == cuda::Result::kInvalidPtx || result == cuda::Result::kUnsupportedPtxVersion;
}

}  // namespace

ModuleCache::Loaded ModuleCache::Load(const std::string& text, const char* name,
                                      int block_threads) {
  const cuda::Driver& driver = device_.driver();
  Loaded loaded;
  std::string log(4096, '\0');
  device_.CheckUsable();
  const cuda::Result result = LoadText(&device_, text, &log, &loaded.module);
  if (IsRefusal(result)) {
    throw Fail(Code::kUnimplemented, "gpu({}): its driver refuses a kernel: {}: {}",
               device_.index(), driver.Describe(result), log);
  }
  device_.Check(result, "load a kernel");
  try {
    int blocks = 0;
    device_.Do("find a kernel", driver.ModuleGetFunction, &loaded.kernel.function, loaded.module,
               name);
    device_.Do("look at a kernel", driver.BlocksPerMultiprocessor, &blocks, loaded.kernel.function,
               block_threads, size_t{0});
    loaded.kernel.resident_blocks =
        static_cast<uint32_t>(std::max(1, blocks * device_.multiprocessors()));
    return loaded;
  } catch (...) {
    device_.Call(driver.ModuleUnload, loaded.module);
    throw;
  }
}

const Kernel& ModuleCache::Add(const std::string& key, const Loaded& loaded) {
  try {
    return kernels_.emplace(key, loaded.kernel).first->second;
  } catch (...) {
    device_.Call(device_.driver().ModuleUnload, loaded.module);
    throw;
  }
}

}  // namespace tkv
