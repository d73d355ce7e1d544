// Helpers of the kernel files, compiled once per instruction set.

#if defined(TKV_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TKV_KERNELS_CPU_SIMD_INL_H_
#undef TKV_KERNELS_CPU_SIMD_INL_H_
#else
#define TKV_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/half.h"

// Allows vectorising although `out` may be one of the inputs: element i depends only on element i.
#if defined(__clang__)
#define TKV_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define TKV_VECTORIZE _Pragma("GCC ivdep")
#endif

HWY_BEFORE_NAMESPACE();
namespace tkv::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns the elements up to the next boundary from which whole vectors can be streamed.
template <typename T>
HWY_INLINE size_t ElementsToAlignment(const T* pointer, size_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return ((alignment - address % alignment) % alignment) / sizeof(T);
}

// Load elements of a dtype as the type in which they are computed.
template <typename T>
struct LoadNative {
  using Raw = T;
  using Wide = T;
  static HWY_INLINE Wide One(const Raw* source) { return *source; }
  template <class D>
  static HWY_INLINE hn::Vec<D> Many(D tag, const Raw* source) {
    return hn::LoadU(tag, source);
  }
};

struct LoadBF16 {
  using Raw = uint16_t;
  using Wide = float;
  static HWY_INLINE Wide One(const Raw* source) { return F32FromBF16(*source); }
  template <class D>
  static HWY_INLINE hn::Vec<D> Many(D tag, const Raw* source) {
    const hn::Rebind<uint16_t, D> narrow;
    const hn::RebindToUnsigned<D> wide;
    return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, source))));
  }
};

struct LoadF16 {
  using Raw = uint16_t;
  using Wide = float;
  static HWY_INLINE Wide One(const Raw* source) { return F32FromF16(*source); }
  template <class D>
  static HWY_INLINE hn::Vec<D> Many(D tag, const Raw* source) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    const hn::Rebind<hwy::float16_t, D> narrow;
    return hn::PromoteTo(tag, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(source)));
#else  // the other targets of Highway 1.0 lose infinities and NaN
    HWY_ALIGN float wide[hn::MaxLanes(D())];
    for (size_t i = 0; i < hn::Lanes(tag); ++i) wide[i] = F32FromF16(source[i]);
    return hn::Load(tag, wide);
#endif
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tkv::kernels
HWY_AFTER_NAMESPACE();

#endif
