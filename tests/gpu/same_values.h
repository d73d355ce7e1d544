// Compares arrays for tests on GPUs.

#pragma once

#include <cstring>

#include "kernels/kernels.h"
#include "tests/arrays.h"
#include "tkv/ndarray.h"

namespace tkv::test {

inline NDArray OnHost(const NDArray& array) { return array.WithContext(Context::Cpu()); }

inline std::vector<float> ValuesOf(const NDArray& array) { return Values(OnHost(array)); }

// Returns true if the elements are equal; all NaNs are equal.  Both arrays must be on the host.
inline bool SameValues(const NDArray& a, const NDArray& b) {
  if (!IsFloat(a.dtype())) return SameBytes(a, b);
  const auto count = static_cast<size_t>(a.size());
  const size_t item = ItemSize(a.dtype());
  for (size_t i = 0; i < count; ++i) {
    const char* const x = static_cast<const char*>(a.HostData()) + i * item;
    const char* const y = static_cast<const char*>(b.HostData()) + i * item;
    double left = 0, right = 0;
    kernels::Convert(a.dtype(), x, DType::kF64, &left, 1);
    kernels::Convert(b.dtype(), y, DType::kF64, &right, 1);
    if (std::memcmp(x, y, item) != 0 && !(left != left && right != right)) return false;
  }
  return a.shape() == b.shape() && a.dtype() == b.dtype();
}

}  // namespace tkv::test
