// Memory of GPUs and of the host for copies of the values of one call.  A large value is copied by
// itself, many small ones together.

#pragma once

#include <vector>

#include "device/device.h"
#include "tkv/ndarray.h"

namespace tkv {

struct GpuLot {
  std::vector<Device*> devices;
  size_t bytes = 0;
  // Several small values share the lot.
  bool is_shared = false;
  std::vector<NDArray> on_gpu;  // on each of the devices
  NDArray on_host;
};

class GpuLots final {
 public:
  struct Slot {
    size_t lot = 0;
    size_t begin_bytes = 0;
  };

  static constexpr size_t kSmallBytes = size_t{256} << 10;
  static constexpr size_t kLotBytes = size_t{1} << 20;

  // Reserves so many bytes (not 0) on each of the devices.
  Slot Add(const std::vector<Device*>& devices, size_t bytes);
  // Uses a contiguous array as the memory of a large value on one of its devices.
  void UseInPlace(const Slot& slot, size_t device, const NDArray& array);
  // Allocates the pinned host memory of a lot, and GPU memory where UseInPlace has named no array.
  //   throws  kResourceExhausted, kUnavailable
  void Allocate(size_t lot);

  const std::vector<GpuLot>& all() const noexcept { return lots_; }
  // Return the memory of a value, once its lot is allocated.
  NDArray OnHost(const Slot& slot, const Shape& shape, DType dtype) const {
    return NDArray::OfStorage(lots_[slot.lot].on_host.storage(), slot.begin_bytes, shape, dtype);
  }
  std::byte* OnGpu(const Slot& slot, size_t device) const {
    return static_cast<std::byte*>(lots_[slot.lot].on_gpu[device].data()) + slot.begin_bytes;
  }

 private:
  std::vector<GpuLot> lots_;
};

}  // namespace tkv
