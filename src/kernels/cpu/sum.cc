#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sum.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tkv::kernels {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE T AddWrapping(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

// target = [target +] s[0] + ... + s[N-1], from the left, each element by itself.
template <class Load, size_t N, bool kOntoTarget, bool kStream>
void SumLoop(const typename Load::Raw* const* HWY_RESTRICT s, typename Load::Wide* target,
             size_t count) {
  using Wide = typename Load::Wide;
  const hn::ScalableTag<Wide> tag;
  const size_t lanes = hn::Lanes(tag);
  const auto one = [&](size_t i) HWY_ATTR {
    Wide sum = kOntoTarget ? AddWrapping(target[i], Load::One(s[0] + i)) : Load::One(s[0] + i);
    for (size_t k = 1; k < N; ++k) sum = AddWrapping(sum, Load::One(s[k] + i));
    target[i] = sum;
  };
  const auto many = [&](size_t i) HWY_ATTR {
    auto sum = Load::Many(tag, s[0] + i);
    if constexpr (kOntoTarget) sum = hn::Add(hn::LoadU(tag, target + i), sum);
    for (size_t k = 1; k < N; ++k) sum = hn::Add(sum, Load::Many(tag, s[k] + i));
    return sum;
  };
  size_t i = 0;
  if constexpr (kStream) {
    constexpr size_t kLine = 64;
    const size_t head = HWY_MIN(count, ElementsToAlignment(target, kLine));
    for (; i < head; ++i) one(i);
    const size_t step = HWY_MAX(lanes, kLine / sizeof(Wide));
    for (; i + step <= count; i += step) {
      for (size_t j = 0; j < step; j += lanes) hn::Stream(many(i + j), tag, target + i + j);
    }
  } else {
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      const auto first = many(i);
      const auto second = many(i + lanes);
      hn::StoreU(first, tag, target + i);
      hn::StoreU(second, tag, target + i + lanes);
    }
    for (; i + lanes <= count; i += lanes) hn::StoreU(many(i), tag, target + i);
  }
  for (; i < count; ++i) one(i);
}

template <class Load, bool kOntoTarget, bool kStream>
void SumUpTo8(const typename Load::Raw* const* s, size_t n, typename Load::Wide* target,
              size_t count) {
  switch (n) {
    case 1:
      return SumLoop<Load, 1, kOntoTarget, kStream>(s, target, count);
    case 2:
      return SumLoop<Load, 2, kOntoTarget, kStream>(s, target, count);
    case 3:
      return SumLoop<Load, 3, kOntoTarget, kStream>(s, target, count);
    case 4:
      return SumLoop<Load, 4, kOntoTarget, kStream>(s, target, count);
    case 5:
      return SumLoop<Load, 5, kOntoTarget, kStream>(s, target, count);
    case 6:
      return SumLoop<Load, 6, kOntoTarget, kStream>(s, target, count);
    case 7:
      return SumLoop<Load, 7, kOntoTarget, kStream>(s, target, count);
    default:
      return SumLoop<Load, 8, kOntoTarget, kStream>(s, target, count);
  }
}

template <class Load>
void SumAll(const void* const* sources, size_t n, void* target, size_t count, Write write) {
  using Raw = typename Load::Raw;
  using Wide = typename Load::Wide;
  const auto* s = reinterpret_cast<const Raw* const*>(sources);
  auto* out = static_cast<Wide*>(target);
  if (n <= 8) {
    if (write == Write::kStreaming) {
      SumUpTo8<Load, false, true>(s, n, out, count);
    } else {
      SumUpTo8<Load, false, false>(s, n, out, count);
    }
    return;
  }
  // More streams than registers and fill buffers: by blocks that stay in the first-level cache.
  constexpr size_t kBlock = 2048;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t length = HWY_MIN(kBlock, count - at);
    for (size_t done = 0; done < n;) {
      const size_t group = HWY_MIN(n - done, size_t{8});
      const Raw* part[8];
      for (size_t k = 0; k < group; ++k) part[k] = s[done + k] + at;
      if (done == 0) {
        SumUpTo8<Load, false, false>(part, group, out + at, length);
      } else {
        SumUpTo8<Load, true, false>(part, group, out + at, length);
      }
      done += group;
    }
  }
}

void SumDispatch(DType dtype, const void* const* sources, size_t n, void* target, size_t count,
                 Write write) {
  switch (dtype) {
    case DType::kF32:
      return SumAll<LoadNative<float>>(sources, n, target, count, write);
    case DType::kF64:
      return SumAll<LoadNative<double>>(sources, n, target, count, write);
    case DType::kF16:
      return SumAll<LoadF16>(sources, n, target, count, write);
    case DType::kBF16:
      return SumAll<LoadBF16>(sources, n, target, count, write);
    case DType::kI8:
      return SumAll<LoadNative<int8_t>>(sources, n, target, count, write);
    case DType::kU8:
      return SumAll<LoadNative<uint8_t>>(sources, n, target, count, write);
    case DType::kI16:
      return SumAll<LoadNative<int16_t>>(sources, n, target, count, write);
    case DType::kI32:
      return SumAll<LoadNative<int32_t>>(sources, n, target, count, write);
    case DType::kI64:
      return SumAll<LoadNative<int64_t>>(sources, n, target, count, write);
    default:
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tkv::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tkv::kernels {

TKV_EXPORT(SumDispatch);

void Sum(DType dtype, std::span<const void* const> sources, void* target, size_t count,
         Write write) {
  TKV_DISPATCH(SumDispatch)(dtype, sources.data(), sources.size(), target, count, write);
}

}  // namespace tkv::kernels
#endif
