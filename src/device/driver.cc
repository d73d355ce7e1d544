#include "device/driver.h"

#include <dlfcn.h>

#include "base/format.h"

namespace tkv::cuda {
namespace {

// The first version that accepts PTX 6.3.
constexpr int kVersionMin = 10'000;

constexpr const char* kLibrary = "libcuda.so.1";

template <typename Function>
void Find(void* library, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (*function != nullptr) return;
  throw Fail(Code::kUnimplemented, "the NVIDIA driver has no {}, which CUDA 10.0 has", symbol);
}

Driver FindFunctions(void* library) {
  Driver driver;
#define TKV_DRIVER_FIND(name, symbol, parameters) Find(library, #symbol, &driver.name);
  TKV_DRIVER_FUNCTIONS(TKV_DRIVER_FIND)
#undef TKV_DRIVER_FIND
  return driver;
}

void CheckVersion(const Driver& driver) {
  int version = 0;
  if (driver.DriverGetVersion(&version) == Result::kSuccess && version >= kVersionMin) return;
  throw Fail(Code::kUnimplemented, "the NVIDIA driver is for CUDA {}.{}, at least 10.0 is needed",
             version / 1000, version % 1000 / 10);
}

void Initialize(const Driver& driver) {
  const Result result = driver.Init(0);
  if (result == Result::kSuccess) return;
  if (result == Result::kNoDevice) {
    throw Fail(Code::kUnimplemented, "the NVIDIA driver knows no GPU");
  }
  throw Fail(Code::kUnavailable, "the NVIDIA driver does not start: {}", driver.Describe(result));
}

}  // namespace

bool IsSticky(Result result) noexcept {
  switch (result) {
    case Result::kDeinitialized:
    case Result::kEccUncorrectable:
    case Result::kNvlinkUncorrectable:
    case Result::kIllegalAddress:
    case Result::kLaunchTimeout:
    case Result::kContextIsDestroyed:
    case Result::kAssert:
    case Result::kHardwareStackError:
    case Result::kIllegalInstruction:
    case Result::kMisalignedAddress:
    case Result::kInvalidAddressSpace:
    case Result::kInvalidPc:
    case Result::kLaunchFailed:
    case Result::kUnknown:
      return true;
    default:
      return false;
  }
}

std::string Driver::Describe(Result result) const {
  const char* name = nullptr;
  if (GetErrorName(result, &name) != Result::kSuccess || name == nullptr) name = "error";
  return Format("{} ({})", name, static_cast<int>(result));
}

Driver LoadDriver() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Fail(Code::kUnimplemented, "this machine has no NVIDIA driver ({})", kLibrary);
  }
  try {
    const Driver driver = FindFunctions(library);
    CheckVersion(driver);
    Initialize(driver);
    return driver;
  } catch (const Error&) {
    dlclose(library);
    throw;
  }
}

}  // namespace tkv::cuda
