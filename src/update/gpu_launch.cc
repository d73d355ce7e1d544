#include "update/gpu_launch.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "kernels/cuda/ptx.h"

namespace tkv {
namespace {

using kernels::Elementwise;
using kernels::cuda::Entry;
using kernels::cuda::kBlockThreads;
using kernels::cuda::kParameterBytesMax;
using kernels::cuda::TableHead;

// Code as text that is equal for equal code.
class CodeKey {
 public:
  explicit CodeKey(const Elementwise& code) {
    Add(code.compute, code.source_dtype, code.source_count, code.has_more_sources,
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

const Kernel& KernelFor(Device* device, const Elementwise& code) {
  return device->modules().Find(
      CodeKey(code).text(), kernels::cuda::kKernelName, kBlockThreads,
      [&] { return WritePtx(code, kernels::cuda::TablePlace::kParameter); });
}

}  // namespace

GpuLaunch::GpuLaunch(Device* device, const Elementwise& code, std::span<const Entry> entries)
    : device_(*device), kernel_(KernelFor(device, code)), table_(BuildTable(code, entries)) {
  TKV_CHECK(table_.size() <= kParameterBytesMax);
  TableHead head;
  std::memcpy(&head, table_.data(), sizeof(head));
  tiles_ = head.tile_count;
  table_.resize(kParameterBytesMax);  // the parameter is as long as the kernel says
}

void GpuLaunch::Run() {
  void* parameters[] = {table_.data()};
  const uint32_t blocks = std::clamp<uint32_t>(tiles_, 1, kernel_.resident_blocks);
  device_.Do("launch", device_.driver().Launch, kernel_.function, blocks, 1U, 1U, kBlockThreads, 1U,
             1U, 0U, device_.compute().handle(), static_cast<void**>(parameters),
             static_cast<void**>(nullptr));
}

}  // namespace tkv
