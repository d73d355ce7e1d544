#include "update/gpu_arrays.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/operation.h"
#include "tensor/device_work.h"
#include "update/gpu_launch.h"

namespace tkv {
namespace {

using kernels::Elementwise;
using kernels::cuda::Entry;

// Returns the number of the entry's pointer to the array, adding it if the entry has none.
uint16_t PointerTo(const NDArray& array, Entry* entry) {
  auto& pointers = entry->pointers;
  const auto found = std::ranges::find(pointers, AddressOf(array));
  const auto number = static_cast<uint16_t>(found - pointers.begin());
  if (found == pointers.end()) pointers.push_back(AddressOf(array));
  return number;
}

// Returns the array, or a copy if it overlaps the target without being equal: its elements would be
// overwritten before they are read.
NDArray Beside(const NDArray& array, const NDArray& target) {
  const bool is_apart = AddressOf(array) == AddressOf(target) || !OverlapOnDevice(array, target);
  return is_apart ? array : array.Copy();
}

// Returns an integer type of so many bytes, to move elements as plain bits.
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

void LaunchOnDevice(const Elementwise& code, const Entry& entry, std::span<const NDArray> reads,
                    std::span<const NDArray> writes) {
  if (entry.count == 0) return;
  Device& device = Device::Get(writes.front().storage()->memory().index);
  kernels::cuda::LaunchTable table(code);
  table.Add(entry);
  GpuLaunch launch(&device, code, table);
  TKV_CHECK(!launch.table_memory());  // one entry of few sources
  DeviceWork work(&device.compute(), reads, writes);
  launch.Run();
  work.Given();
}

bool OverlapOnDevice(const NDArray& a, const NDArray& b) {
  return AddressOf(a) < AddressOf(b) + b.bytes() && AddressOf(b) < AddressOf(a) + a.bytes();
}

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
  LaunchOnDevice(code, entry, reads, {&target, 1});
}

void FillOnDevice(const NDArray& target, const std::byte* element) {
  const size_t item = ItemSize(target.dtype());
  const DType dtype = IntegerOf(item);
  Elementwise code;
  code.compute = dtype;
  code.scalar_count = code.pointer_count = 1;
  code.instructions = {{kernels::Op::kMax, {{true, 0}, {true, 0}}}};  // the scalar itself
  code.stores = {{1, dtype, dtype, 0}};
  const Entry entry{
      static_cast<size_t>(target.size()), {AddressOf(target)}, {}, {element, element + item}};
  LaunchOnDevice(code, entry, {}, {&target, 1});
}

void ConvertOnDevice(const NDArray& source, const NDArray& target) {
  Elementwise code;
  code.compute = ComputeType(source.dtype());
  code.pointer_count = 2;
  code.loads = {{source.dtype(), 0}};
  code.stores = {{1, code.compute, target.dtype(), 1}};
  const Entry entry{
      static_cast<size_t>(target.size()), {AddressOf(source), AddressOf(target)}, {}, {}};
  LaunchOnDevice(code, entry, {&source, 1}, {&target, 1});
}

}  // namespace tkv
