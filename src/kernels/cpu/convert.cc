#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tkv::kernels {
namespace HWY_NAMESPACE {

template <class Load>
void Widen(const void* source, float* target, size_t count) {
  const auto* in = static_cast<const uint16_t*>(source);
  const hn::ScalableTag<float> tag;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Load::Many(tag, in + i), tag, target + i);
  for (; i < count; ++i) target[i] = Load::One(in + i);
}

void NarrowBF16(const float* HWY_RESTRICT source, uint16_t* HWY_RESTRICT target, size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] = BF16FromF32(source[i]);
}

void NarrowF16(const float* HWY_RESTRICT source, uint16_t* HWY_RESTRICT target, size_t count) {
  size_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::ScalableTag<float> tag;
  const hn::Rebind<hwy::float16_t, decltype(tag)> narrow;
  const size_t lanes = hn::Lanes(tag);
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::DemoteTo(narrow, hn::LoadU(tag, source + i)), narrow,
               reinterpret_cast<hwy::float16_t*>(target + i));
  }
#endif
  for (; i < count; ++i) target[i] = F16FromF32(source[i]);
}

template <typename From, typename To, To (*kOne)(From)>
void EachOne(const void* source, void* target, size_t count) {
  const auto* in = static_cast<const From*>(source);
  auto* out = static_cast<To*>(target);
  for (size_t i = 0; i < count; ++i) out[i] = kOne(in[i]);
}

inline float F32FromF64(double value) { return static_cast<float>(value); }
inline double F64FromF32(float value) { return static_cast<double>(value); }
inline double F64FromF16(uint16_t bits) { return static_cast<double>(F32FromF16(bits)); }
inline double F64FromBF16(uint16_t bits) { return static_cast<double>(F32FromBF16(bits)); }
inline uint16_t F16FromF64(double value) { return F16FromF32(F32FromF64RoundToOdd(value)); }
inline uint16_t BF16FromF64(double value) { return BF16FromF32(F32FromF64RoundToOdd(value)); }
inline uint16_t BF16FromF16(uint16_t bits) { return BF16FromF32(F32FromF16(bits)); }
inline uint16_t F16FromBF16(uint16_t bits) { return F16FromF32(F32FromBF16(bits)); }

void ConvertDispatch(DType from, const void* source, DType to, void* target, size_t count) {
  const auto pair = [](DType a, DType b) { return static_cast<int>(a) * 16 + static_cast<int>(b); };
  const auto* f32 = static_cast<const float*>(source);
  auto* wide = static_cast<float*>(target);
  auto* half = static_cast<uint16_t*>(target);
  switch (pair(from, to)) {
    case 0 * 16 + 1:
      return EachOne<float, double, F64FromF32>(source, target, count);
    case 0 * 16 + 2:
      return NarrowF16(f32, half, count);
    case 0 * 16 + 3:
      return NarrowBF16(f32, half, count);
    case 1 * 16 + 0:
      return EachOne<double, float, F32FromF64>(source, target, count);
    case 1 * 16 + 2:
      return EachOne<double, uint16_t, F16FromF64>(source, target, count);
    case 1 * 16 + 3:
      return EachOne<double, uint16_t, BF16FromF64>(source, target, count);
    case 2 * 16 + 0:
      return Widen<LoadF16>(source, wide, count);
    case 2 * 16 + 1:
      return EachOne<uint16_t, double, F64FromF16>(source, target, count);
    case 2 * 16 + 3:
      return EachOne<uint16_t, uint16_t, BF16FromF16>(source, target, count);
    case 3 * 16 + 0:
      return Widen<LoadBF16>(source, wide, count);
    case 3 * 16 + 1:
      return EachOne<uint16_t, double, F64FromBF16>(source, target, count);
    case 3 * 16 + 2:
      return EachOne<uint16_t, uint16_t, F16FromBF16>(source, target, count);
    default:
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tkv::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tkv::kernels {

TKV_EXPORT(ConvertDispatch);

void Convert(DType from, const void* source, DType to, void* target, size_t count) {
  if (from == to) return Copy(source, target, count * ItemSize(from), Write::kCached);
  TKV_DISPATCH(ConvertDispatch)(from, source, to, target, count);
}

}  // namespace tkv::kernels
#endif
