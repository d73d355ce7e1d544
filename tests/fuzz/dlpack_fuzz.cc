// Imports tensors with random descriptions.  A wrong description must be refused.  Every element of
// an accepted tensor must be within its memory.

#include <cstdint>
#include <cstring>
#include <vector>

#include "tkv/dlpack.h"
#include "tkv/error.h"

namespace {

constexpr size_t kBytes = 4096;

// Returns true if every element of the described tensor is within the buffer, as DLPack requires of
// a producer.
bool Fits(const DLTensor& tensor) {
  __int128 low = static_cast<__int128>(tensor.byte_offset), high = low;
  const __int128 item = (tensor.dtype.bits + 7) / 8;
  __int128 step = 1;
  for (int axis = tensor.ndim - 1; axis >= 0; --axis) {
    const __int128 extent = tensor.shape[axis];
    const __int128 stride = tensor.strides != nullptr ? tensor.strides[axis] : step;
    if (extent < 1 || extent > 4096 || stride > 1 << 20 || stride < -(1 << 20)) return false;
    const __int128 reach = (extent - 1) * stride * item;
    (reach < 0 ? low : high) += reach;
    step *= extent;
    if (step > 4096) return false;
  }
  return low >= 0 && high + item <= static_cast<__int128>(kBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  alignas(64) static unsigned char memory[kBytes];
  const auto take = [&](void* to, size_t bytes) {
    std::memset(to, 0, bytes);
    const size_t n = size < bytes ? size : bytes;
    if (n > 0) std::memcpy(to, data, n);
    data += n;
    size -= n;
  };
  uint8_t head[8];
  take(head, sizeof(head));
  DLManagedTensorVersioned managed{};
  managed.version = {head[0] % 3U, 0};
  managed.flags = head[1];
  const int rank = head[2] % 40 - 2;
  std::vector<int64_t> shape(40), strides(40);
  for (int i = 0; i < rank; ++i) {
    int16_t small[2];
    take(small, sizeof(small));
    shape[static_cast<size_t>(i)] = head[3] % 4 == 0 ? int64_t{small[0]} << 48 : small[0] % 8;
    strides[static_cast<size_t>(i)] = head[3] % 5 == 0 ? int64_t{small[1]} << 47 : small[1] % 16;
  }
  managed.dl_tensor = {
      .data = head[4] == 0 ? nullptr : memory,
      .device = {static_cast<DLDeviceType>(head[5] % 8 == 7 ? head[5] : 1), 0},
      .ndim = rank,
      .dtype = {static_cast<uint8_t>(head[6] % 8), static_cast<uint8_t>(8U << (head[7] % 4)), 1},
      .shape = shape.data(),
      .strides = head[1] % 2 == 0 ? strides.data() : nullptr,
      .byte_offset = head[7]};
  const bool fits = rank >= 0 && Fits(managed.dl_tensor);
  try {
    const tkv::NDArray array = tkv::FromDLPack(&managed);
    if (fits && array.data() != nullptr) {
      const tkv::NDArray copy = array.Copy();
      if (!array.read_only()) array.CopyFrom(copy);
      if (array.shape().rank() > 0 && array.shape()[0] > 0) array.At(0).Copy();
    }
  } catch (const tkv::Error&) {
    return 0;
  }
  return 0;
}
