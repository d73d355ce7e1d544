#include "dist/gpu_lots.h"

#include <algorithm>

#include "base/round_up.h"

namespace tkv {
namespace {

constexpr size_t kAlignment = 256;

NDArray BytesIn(Memory memory, size_t bytes) {
  return NDArray::OfStorage(Storage::Allocate(bytes, memory), 0,
                            Shape({static_cast<int64_t>(bytes)}), DType::kU8);
}

}  // namespace

GpuLots::Slot GpuLots::Add(const std::vector<Device*>& devices, size_t bytes) {
  const bool is_small = bytes < kSmallBytes;
  // The newest lot that small values of these devices share.
  const auto last = std::find_if(lots_.rbegin(), lots_.rend(), [&](const GpuLot& lot) {
    return is_small && lot.is_shared && lot.devices == devices;
  });
  if (last == lots_.rend() || RoundUp(last->bytes, kAlignment) + bytes > kLotBytes) {
    lots_.push_back({devices, bytes, is_small, std::vector<NDArray>(devices.size()), {}});
    return {lots_.size() - 1, 0};
  }
  const size_t begin = RoundUp(last->bytes, kAlignment);
  last->bytes = begin + bytes;
  return {static_cast<size_t>(lots_.rend() - last) - 1, begin};
}

void GpuLots::UseInPlace(const Slot& slot, size_t device, const NDArray& array) {
  lots_[slot.lot].on_gpu[device] = array;
}

void GpuLots::Allocate(size_t lot) {
  GpuLot& one = lots_[lot];
  for (size_t i = 0; i < one.devices.size(); ++i) {
    if (one.on_gpu[i]) continue;
    one.on_gpu[i] = BytesIn({Memory::Kind::kDevice, one.devices[i]->index()}, one.bytes);
  }
  one.on_host = BytesIn({Memory::Kind::kPinned, one.devices[0]->index()}, one.bytes);
}

}  // namespace tkv
