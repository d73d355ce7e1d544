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

// How a loop uses its sum: writes it, adds it to the target, or writes it past the cache.
enum class How : uint8_t { kWrite, kAdd, kStream };

// Computes target = [target +] s[0] + ... + s[N-1] for each element, from left to right.  Unless
// kStream, a source may be the target.
template <class Load, size_t N, How kHow>
void SumLoop(const typename Load::Raw* const* HWY_RESTRICT s, typename Load::Wide* target,
             size_t count) {
  using Wide = typename Load::Wide;
  const hn::ScalableTag<Wide> tag;
  const size_t lanes = hn::Lanes(tag);
  const auto one = [&](size_t i) HWY_ATTR {
    Wide sum = Load::One(s[0] + i);
    if constexpr (kHow == How::kAdd) sum = AddWrapping(target[i], sum);
    for (size_t k = 1; k < N; ++k) sum = AddWrapping(sum, Load::One(s[k] + i));
    target[i] = sum;
    asm volatile("");  // keeps the compiler from vectorising these few elements
  };
  const auto many = [&](size_t i) HWY_ATTR {
    auto sum = Load::Many(tag, s[0] + i);
    if constexpr (kHow == How::kAdd) sum = hn::Add(hn::LoadU(tag, target + i), sum);
    for (size_t k = 1; k < N; ++k) sum = hn::Add(sum, Load::Many(tag, s[k] + i));
    return sum;
  };
  size_t i = 0;
  if constexpr (kHow == How::kStream) {
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

// Most sources of one loop: more streams would lack registers and fill buffers.
constexpr size_t kSourcesMax = 8;

// True if a sum has the type of the sources, so that it can be a source itself.
template <class Load>
constexpr bool kIsSource = std::is_same_v<typename Load::Raw, typename Load::Wide>;

template <class Load, How kHow>
void SumGroup(const typename Load::Raw* const* s, size_t n, typename Load::Wide* target,
              size_t count) {
  switch (n) {
    case 1:
      return SumLoop<Load, 1, kHow>(s, target, count);
    case 2:
      return SumLoop<Load, 2, kHow>(s, target, count);
    case 3:
      return SumLoop<Load, 3, kHow>(s, target, count);
    case 4:
      return SumLoop<Load, 4, kHow>(s, target, count);
    case 5:
      return SumLoop<Load, 5, kHow>(s, target, count);
    case 6:
      return SumLoop<Load, 6, kHow>(s, target, count);
    case 7:
      return SumLoop<Load, 7, kHow>(s, target, count);
    case 8:
      return SumLoop<Load, 8, kHow>(s, target, count);
    default:  // the sum of earlier groups, and another group
      return SumLoop < Load, kHow == How::kWrite && kIsSource<Load> ? 9 : 8,
             kHow > (s, target, count);
  }
}

// Sums more sources than one loop takes: block by block, in groups.
template <class Load>
void SumInGroups(const typename Load::Raw* const* s, size_t n, typename Load::Wide* target,
                 size_t count) {
  constexpr size_t kBlock = 2048;  // stays in the first-level cache
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t length = HWY_MIN(kBlock, count - at);
    for (size_t done = 0; done < n;) {
      const typename Load::Raw* part[kSourcesMax + 1];
      size_t size = 0;
      const bool is_first = done == 0;
      if constexpr (kIsSource<Load>) {
        if (!is_first) part[size++] = target + at;
      }
      const size_t end = HWY_MIN(n, done + kSourcesMax);
      while (done < end) part[size++] = s[done++] + at;
      if (kIsSource<Load> || is_first) {
        SumGroup<Load, How::kWrite>(part, size, target + at, length);
      } else if constexpr (!kIsSource<Load>) {
        SumGroup<Load, How::kAdd>(part, size, target + at, length);
      }
    }
  }
}

template <class Load>
void SumAll(const void* const* sources, size_t n, void* target, size_t count, Write write) {
  const auto* s = reinterpret_cast<const typename Load::Raw* const*>(sources);
  auto* out = static_cast<typename Load::Wide*>(target);
  if (n > kSourcesMax) return SumInGroups<Load>(s, n, out, count);
  if (write == Write::kCached) return SumGroup<Load, How::kWrite>(s, n, out, count);
  SumGroup<Load, How::kStream>(s, n, out, count);
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
    case DType::kI8:  // wraps as the unsigned type does
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
