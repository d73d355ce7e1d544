#include "tkv/context.h"

#include "base/format.h"
#include "device/device.h"
#include "tkv/storage.h"

namespace tkv {

std::string Context::ToString() const {
  return Format("{}({})", kind == DeviceKind::kCpu ? "cpu" : "gpu", index);
}

Memory MemoryOf(const Context& context) noexcept {
  if (context.kind == DeviceKind::kCpu) return {};
  return {Memory::Kind::kDevice, context.index};
}

void CheckUsable(const Context& context) {
  if (context.index < 0) {
    throw Fail(Code::kInvalidArgument, "context {}: the index is negative", context.ToString());
  }
  if (context.kind == DeviceKind::kGpu) Device::Get(context.index).CheckUsable();
}

}  // namespace tkv
