// Memory of GPUs and of the host between which values of one call are copied: a large value by a copy of its
// own, many small ones by one.

#pragma once

#include <vector>

#include "device/device.h"
#include "tkv/ndarray.h"

namespace tkv {

struct GpuLot {
  std::vector<Device*> devices;
  size_t bytes = 0;
  bool is_shared = false;       // by small values
  std::vector<NDArray> on_gpu;  // on each of the devices
  NDArray on_host;
};

class GpuLots final {
 public:
  struct Place {
    size_t lot = 0;
    size_t begin_bytes = 0;
  };

  static constexpr size_t kSmallBytes = size_t{256} << 10;
  static constexpr size_t kLotBytes = size_t{1} << 20;

  // Room for so many bytes, not 0, on each of some devices.
  Place Add(const std::vector<Device*>& devices, size_t bytes);
  // The room of a large value on one of its devices is that of an array, which is contiguous there.
  void UseInPlace(const Place& place, size_t device, const NDArray& array);
  // Pinned memory of the host for a lot, and that of GPUs where no array has it.
  //   throws  kResourceExhausted, kUnavailable
  void Allocate(size_t lot);

  const std::vector<GpuLot>& all() const noexcept { return lots_; }
  // Once they are allocated.
  NDArray OnHost(const Place& place, const Shape& shape, DType dtype) const {
    return NDArray::OfStorage(lots_[place.lot].on_host.storage(), place.begin_bytes, shape, dtype);
  }
  std::byte* OnGpu(const Place& place, size_t device) const {
    return static_cast<std::byte*>(lots_[place.lot].on_gpu[device].data()) + place.begin_bytes;
  }

 private:
  std::vector<GpuLot> lots_;
};

}  // namespace tkv
