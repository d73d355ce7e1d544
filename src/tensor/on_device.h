// Helpers for arrays whose memory is on a device.

#pragma once

#include "device/device.h"
#include "tkv/ndarray.h"

namespace tkv {

inline bool IsOfDevice(const NDArray& array) {
  return array.storage()->memory().kind == Memory::Kind::kDevice;
}

inline Device& DeviceOf(const NDArray& array) {
  return Device::Get(array.storage()->memory().index);
}

inline cuda::Address AddressOf(const NDArray& array) {
  return reinterpret_cast<cuda::Address>(array.data());
}

}  // namespace tkv
