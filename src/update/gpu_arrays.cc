#include "update/gpu_arrays.h"

#include <algorithm>
#include <vector>

#include "kernels/operation.h"
#include "tensor/device_work.h"
#include "update/gpu_launch.h"

namespace tkv {
namespace {

using kernels::Elementwise;
using kernels::cuda::Entry;

void Launch(const Elementwise& code, const Entry& entry, std::span<const NDArray> reads,
            const NDArray& target) {
  if (target.size() == 0) return;
  Device& device = Device::Get(target.storage()->memory().index);
  GpuLaunch launch(&device, code, {&entry, 1});
  DeviceWork work(&device.compute(), reads, {&target, 1});
  launch.Run();
  work.Given();
}

// The number of the pointer, which is a new one where the entry has none to that place.
uint16_t PointerTo(const NDArray& array, Entry* entry) {
  auto& pointers = entry->pointers;
  const auto found = std::ranges::find(pointers, AddressOf(array));
  const auto number = static_cast<uint16_t>(found - pointers.begin());
  if (found == pointers.end()) pointers.push_back(AddressOf(array));
  return number;
}

// An operand that overlaps the target but for being it would be read after it is written.
NDArray Beside(const NDArray& array, const NDArray& target) {
  const cuda::Address read = AddressOf(array), written = AddressOf(target);
  const bool overlap = read < written + target.bytes() && written < read + array.bytes();
  return overlap && read != written ? array.Copy() : array;
}

// An integer type whose elements have so many bytes: what is moved as it moves any bits.
DType IntegerOf(size_t bytes) {
  switch (bytes) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kI16;
    case 4:
      return DType::kI32;
    default:
      return DType::kI64;
  }
}

}  // namespace

void ApplyOnDevice(kernels::Op op, kernels::ScalarMask mask, std::span<const std::byte> scalar,
                   std::span<const NDArray> arrays, const NDArray& target) {
  const DType dtype = target.dtype();
  Elementwise code;
  code.compute = ComputeType(dtype);
  code.scalar_count = mask == 0 ? 0 : 1;
  kernels::Instruction instruction{op, {}};
  Entry entry{static_cast<size_t>(target.size()), {}, {}, {scalar.begin(), scalar.end()}};
  std::vector<NDArray> reads;
  for (int i = 0; i < kernels::Arity(op); ++i) {
    if ((mask >> i & 1) != 0) {
      instruction.operands[i] = {true, 0};
      continue;
    }
    reads.push_back(Beside(arrays[reads.size()], target));
    code.loads.push_back({dtype, PointerTo(reads.back(), &entry)});
    instruction.operands[i] = {false, static_cast<uint16_t>(reads.size())};
  }
  code.instructions = {instruction};
  const auto result = static_cast<uint16_t>(reads.size() + 1);
  code.stores = {{result, dtype, dtype, PointerTo(target, &entry)}};
  code.pointer_count = static_cast<uint16_t>(entry.pointers.size());
  Launch(code, entry, reads, target);
}

void FillOnDevice(const NDArray& target, const std::byte* element) {
  const size_t item = ItemSize(target.dtype());
  const DType dtype = IntegerOf(item);
  Elementwise code;
  code.compute = dtype;
  code.scalar_count = code.pointer_count = 1;
  code.instructions = {{kernels::Op::kMax, {{true, 0}, {true, 0}}}};  // the scalar as it is
  code.stores = {{1, dtype, dtype, 0}};
  const Entry entry{
      static_cast<size_t>(target.size()), {AddressOf(target)}, {}, {element, element + item}};
  Launch(code, entry, {}, target);
}

void ConvertOnDevice(const NDArray& source, const NDArray& target) {
  Elementwise code;
  code.compute = ComputeType(source.dtype());
  code.pointer_count = 2;
  code.loads = {{source.dtype(), 0}};
  code.stores = {{1, code.compute, target.dtype(), 1}};
  const Entry entry{
      static_cast<size_t>(target.size()), {AddressOf(source), AddressOf(target)}, {}, {}};
  Launch(code, entry, {&source, 1}, target);
}

}  // namespace tkv
