#include "update/gpu_launch.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/ptx.h"
#include "tensor/device_copy.h"
#include "tensor/device_work.h"

namespace tkv {
namespace {

using kernels::Elementwise;
using kernels::cuda::kBlockThreads;
using kernels::cuda::kParameterBytesMax;
using kernels::cuda::LaunchTable;
using kernels::cuda::TableHead;
using kernels::cuda::TablePlace;

// A text that is equal for equal code, as a key of the kernel cache.
class CodeKey {
 public:
  CodeKey(const Elementwise& code, TablePlace place) {
    Add(place, code.compute, code.source_dtype, code.source_count, code.has_more_sources,
        code.pointer_count, code.scalar_count, code.loads.size(), code.instructions.size());
    for (const auto& load : code.loads) Add(load.dtype, load.pointer);
    for (const auto& instruction : code.instructions) {
      Add(instruction.op);
      for (const auto& operand : instruction.operands) Add(operand.is_scalar, operand.index);
    }
    for (const auto& store : code.stores) {
      Add(store.array, store.through, store.dtype, store.pointer);
    }
  }

  const std::string& text() const { return text_; }

 private:
  template <typename... Fields>
  void Add(Fields... fields) {
    (text_.append(reinterpret_cast<const char*>(&fields), sizeof(fields)), ...);
  }

  std::string text_;
};

const Kernel& KernelFor(Device* device, const Elementwise& code, TablePlace place) {
  return device->modules().Find(CodeKey(code, place).text(), kernels::cuda::kKernelName,
                                kBlockThreads, [&] { return WritePtx(code, place); });
}

}  // namespace

GpuLaunch::GpuLaunch(Device* device, const Elementwise& code, const LaunchTable& table)
    : device_(*device), parameter_(table.Bytes()) {
  TableHead head;
  std::memcpy(&head, parameter_.data(), sizeof(head));
  tiles_ = head.tile_count;
  const bool is_long = parameter_.size() > kParameterBytesMax;
  kernel_ = &KernelFor(device, code, is_long ? TablePlace::kMemory : TablePlace::kParameter);
  if (!is_long) {
    parameter_.resize(kParameterBytesMax);  // the length that the kernel declares
    return;
  }
  table_memory_ = NDArray::Empty({static_cast<int64_t>(parameter_.size())}, DType::kU8,
                                 Context::Gpu(device->index()));
  CopyToDevice(parameter_.data(), table_memory_);
  const cuda::Address address = AddressOf(table_memory_);
  parameter_.resize(sizeof(address));
  std::memcpy(parameter_.data(), &address, sizeof(address));
}

void GpuLaunch::Run() {
  void* parameters[] = {parameter_.data()};
  const uint32_t blocks = std::clamp<uint32_t>(tiles_, 1, kernel_->resident_blocks);
  device_.Do("launch", device_.driver().Launch, kernel_->function, blocks, 1U, 1U, kBlockThreads,
             1U, 1U, 0U, device_.compute().handle(), static_cast<void**>(parameters),
             static_cast<void**>(nullptr));
}

}  // namespace tkv
