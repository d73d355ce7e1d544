#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tkv::kernels {
namespace HWY_NAMESPACE {

constexpr size_t kPartialSums = 16;

// The compiler vectorises over the partial sums: each keeps its own order on every instruction set.
template <typename T>
double ReduceLoop(const T* source, size_t count) {
  double sums[kPartialSums] = {};
  size_t i = 0;
  for (; i + kPartialSums <= count; i += kPartialSums) {
    for (size_t k = 0; k < kPartialSums; ++k) sums[k] += static_cast<double>(source[i + k]);
  }
  for (size_t k = 0; i < count; ++i, ++k) sums[k] += static_cast<double>(source[i]);
  for (size_t half = kPartialSums / 2; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

double ReduceDispatch(DType dtype, const void* source, size_t count) {
  if (dtype == DType::kF64) return ReduceLoop(static_cast<const double*>(source), count);
  return ReduceLoop(static_cast<const float*>(source), count);
}

}  // namespace HWY_NAMESPACE
}  // namespace tkv::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tkv::kernels {

TKV_EXPORT(ReduceDispatch);

double ReduceSum(DType dtype, const void* source, size_t count) {
  return TKV_DISPATCH(ReduceDispatch)(dtype, source, count);
}

}  // namespace tkv::kernels
#endif
