#include "kernels/encode.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tkv::kernels {
namespace HWY_NAMESPACE {

constexpr size_t kLargestVector = 16;  // lanes of f32

constexpr float kLargest = std::numeric_limits<float>::max();

template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<D> IsFinite(D tag, V x) {
  return hn::Eq(hn::Sub(x, x), hn::Zero(tag));  // inf - inf is NaN
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Within(D tag, float largest, V x) {
  const V high = hn::Set(tag, largest);
  return hn::Min(hn::Max(x, hn::Neg(high)), high);
}

// Adds vectors of gradients to their residuals.  If a gradient is not finite, the result is the
// residual, and `lost` counts it.
template <class D>
struct Sums {
  using V = hn::Vec<D>;
  const D tag;
  size_t lost = 0;

  HWY_INLINE V Add(const float* gradient, const float* residual) {
    const V before = hn::LoadU(tag, residual);
    const V given = hn::LoadU(tag, gradient);
    const V sum = hn::Add(before, given);
    if (HWY_UNLIKELY(!hn::AllTrue(tag, IsFinite(tag, sum)))) {
      const auto is_finite = IsFinite(tag, given);
      lost += hn::Lanes(tag) - hn::CountTrue(tag, is_finite);
      return hn::IfThenElse(is_finite, Within(tag, kLargest, sum), before);
    }
    return sum;
  }
};

// The two encodings whose elements become bits of big-endian words of 32 bits.
struct TwoBit {
  static constexpr size_t kElements = 16;  // per word
  static constexpr int kBits = 2;

  template <class D, class V>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Split([[maybe_unused]] D tag, V threshold,
                                                           V* x) {
    const hn::RebindToUnsigned<D> bits;
    const auto is_high = hn::Ge(*x, threshold);
    const auto is_low = hn::Le(*x, hn::Neg(threshold));
    *x = hn::IfThenElse(is_high, hn::Sub(*x, threshold),
                        hn::IfThenElse(is_low, hn::Add(*x, threshold), *x));
    return hn::Or(hn::IfThenElseZero(hn::RebindMask(bits, is_high), hn::Set(bits, 3)),
                  hn::IfThenElseZero(hn::RebindMask(bits, is_low), hn::Set(bits, 2)));
  }

  template <class D, class B, class V>
  static HWY_INLINE V Join([[maybe_unused]] D tag, B code, V threshold) {
    const hn::RebindToUnsigned<D> bits;
    const auto is_used = hn::RebindMask(tag, hn::TestBit(code, hn::Set(bits, 2)));
    const auto is_high = hn::RebindMask(tag, hn::TestBit(code, hn::Set(bits, 1)));
    return hn::IfThenElseZero(is_used, hn::IfThenElse(is_high, threshold, hn::Neg(threshold)));
  }
};

struct OneBit {
  static constexpr size_t kElements = 32;
  static constexpr int kBits = 1;

  template <class D, class V>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Split([[maybe_unused]] D tag, V threshold,
                                                           V* x) {
    const hn::RebindToUnsigned<D> bits;
    const auto is_high = hn::Gt(*x, threshold);
    const V one = hn::Set(tag, 1.0F);
    *x = hn::IfThenElse(is_high, hn::Sub(*x, one), hn::Add(*x, one));
    return hn::IfThenElseZero(hn::RebindMask(bits, is_high), hn::Set(bits, 1));
  }

  template <class D, class B, class V>
  static HWY_INLINE V Join([[maybe_unused]] D tag, B code, V /*threshold*/) {
    const hn::RebindToUnsigned<D> bits;
    const auto is_high = hn::RebindMask(tag, hn::TestBit(code, hn::Set(bits, 1)));
    return hn::IfThenElse(is_high, hn::Set(tag, 1.0F), hn::Set(tag, -1.0F));
  }
};

template <class Bits>
struct Words {
  const hn::CappedTag<float, kLargestVector> tag;
  const hn::RebindToUnsigned<decltype(tag)> bits;
  // Element i of a word is shifted left by this many bits.
  HWY_ALIGN uint32_t shifts[Bits::kElements];

  Words() {
    for (size_t i = 0; i < Bits::kElements; ++i) {
      shifts[i] = static_cast<uint32_t>(32 - Bits::kBits * static_cast<int>(i + 1));
    }
  }

  HWY_INLINE uint32_t EncodeOne(float threshold, const float* gradient, float* residual,
                                size_t* lost) const {
    Sums<decltype(tag)> sums{tag};
    const auto limit = hn::Set(tag, threshold);
    auto word = hn::Zero(bits);
    for (size_t i = 0; i < Bits::kElements; i += hn::Lanes(tag)) {
      auto x = sums.Add(gradient + i, residual + i);
      const auto code = Bits::Split(tag, limit, &x);
      hn::StoreU(x, tag, residual + i);
      word = hn::Or(word, hn::Shl(code, hn::Load(bits, shifts + i)));
    }
    *lost += sums.lost;
    return __builtin_bswap32(hn::GetLane(hn::SumOfLanes(bits, word)));  // no two share a bit
  }

  template <Into kInto>
  HWY_INLINE void DecodeOne(float threshold, uint32_t stored, float* target) const {
    const auto word = hn::Set(bits, __builtin_bswap32(stored));
    const auto limit = hn::Set(tag, threshold);
    for (size_t i = 0; i < Bits::kElements; i += hn::Lanes(tag)) {
      auto value = Bits::Join(tag, hn::Shr(word, hn::Load(bits, shifts + i)), limit);
      if constexpr (kInto == Into::kAdd) value = hn::Add(hn::LoadU(tag, target + i), value);
      hn::StoreU(value, tag, target + i);
    }
  }
};

template <class Bits>
size_t EncodeWords(float threshold, const float* gradient, float* residual, std::byte* target,
                   size_t count) {
  const Words<Bits> words;
  size_t lost = 0;
  const size_t whole = count / Bits::kElements;
  for (size_t w = 0; w < whole; ++w) {
    const size_t i = w * Bits::kElements;
    const uint32_t word = words.EncodeOne(threshold, gradient + i, residual + i, &lost);
    std::memcpy(target + w * sizeof(word), &word, sizeof(word));
  }
  const size_t rest = count - whole * Bits::kElements;
  if (rest == 0) return lost;
  float last_gradient[Bits::kElements] = {};
  float last_residual[Bits::kElements] = {};
  std::memcpy(last_gradient, gradient + whole * Bits::kElements, rest * sizeof(float));
  std::memcpy(last_residual, residual + whole * Bits::kElements, rest * sizeof(float));
  uint32_t word =
      __builtin_bswap32(words.EncodeOne(threshold, last_gradient, last_residual, &lost));
  word &= ~uint32_t{0} << (32 - rest * Bits::kBits);  // padding bits are 0
  word = __builtin_bswap32(word);
  std::memcpy(residual + whole * Bits::kElements, last_residual, rest * sizeof(float));
  std::memcpy(target + whole * sizeof(word), &word, sizeof(word));
  return lost;
}

template <class Bits, Into kInto>
void DecodeWords(float threshold, const std::byte* source, float* target, size_t count) {
  const Words<Bits> words;
  const size_t whole = count / Bits::kElements;
  uint32_t word;
  for (size_t w = 0; w < whole; ++w) {
    std::memcpy(&word, source + w * sizeof(word), sizeof(word));
    words.template DecodeOne<kInto>(threshold, word, target + w * Bits::kElements);
  }
  const size_t rest = count - whole * Bits::kElements;
  if (rest == 0) return;
  float last[Bits::kElements] = {};
  std::memcpy(last, target + whole * Bits::kElements, rest * sizeof(float));
  std::memcpy(&word, source + whole * sizeof(word), sizeof(word));
  words.template DecodeOne<kInto>(threshold, word, last);
  std::memcpy(target + whole * Bits::kElements, last, rest * sizeof(float));
}

size_t AddLoop(const float* gradient, float* residual, size_t count) {
  const hn::CappedTag<float, kLargestVector> tag;
  Sums<decltype(tag)> sums{tag};
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(sums.Add(gradient + i, residual + i), tag, residual + i);
  }
  for (; i < count; ++i) {
    if (gradient[i] - gradient[i] == 0) {
      residual[i] = HWY_MAX(-kLargest, HWY_MIN(kLargest, residual[i] + gradient[i]));
    } else {
      ++sums.lost;
    }
  }
  return sums.lost;
}

float LargestMagnitude(const float* x, size_t count) {
  const hn::CappedTag<float, kLargestVector> tag;
  const size_t lanes = hn::Lanes(tag);
  auto largest = hn::Zero(tag);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    largest = hn::Max(largest, hn::Abs(hn::LoadU(tag, x + i)));
  }
  float found = hn::GetLane(hn::MaxOfLanes(tag, largest));
  for (; i < count; ++i) found = HWY_MAX(found, std::fabs(x[i]));
  return found;
}

constexpr float kLargestScale = 0x1.020406p121F;  // 127 times this is finite

// Encodes one block of at most kEncodedElements; its residual has x already.
void QuantizeBlock(float* x, std::byte* target, size_t count) {
  float scale = HWY_MIN(LargestMagnitude(x, count) / 127, kLargestScale);
  if (scale < std::numeric_limits<float>::min()) scale = 0;  // a quotient by it may overflow
  std::memcpy(target, &scale, sizeof(scale));
  auto* const out = reinterpret_cast<int8_t*>(target + sizeof(scale));
  if (scale == 0) {
    std::memset(out, 0, count);
    return;
  }
  const hn::CappedTag<float, kLargestVector> tag;
  const hn::Rebind<int8_t, decltype(tag)> narrow;
  const size_t lanes = hn::Lanes(tag);
  const auto one = hn::Set(tag, scale);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::LoadU(tag, x + i);
    const auto code = hn::NearestInt(hn::Div(value, one));
    hn::StoreU(hn::DemoteTo(narrow, code), narrow, out + i);
    hn::StoreU(hn::Sub(value, hn::Mul(hn::ConvertTo(tag, code), one)), tag, x + i);
  }
  for (; i < count; ++i) {
    const auto code = static_cast<int32_t>(std::nearbyintf(x[i] / scale));
    out[i] = static_cast<int8_t>(code);
    x[i] = x[i] - static_cast<float>(code) * scale;
  }
}

size_t EncodeInt8(const float* gradient, float* residual, std::byte* target, size_t count) {
  size_t lost = 0;
  for (size_t at = 0; at < count; at += kEncodedElements) {
    const size_t length = HWY_MIN(size_t{kEncodedElements}, count - at);
    lost += AddLoop(gradient + at, residual + at, length);
    QuantizeBlock(residual + at, target, length);
    target += sizeof(float) + length;
  }
  return lost;
}

template <Into kInto>
void DecodeInt8(const std::byte* source, float* target, size_t count) {
  for (size_t at = 0; at < count; at += kEncodedElements) {
    const size_t length = HWY_MIN(size_t{kEncodedElements}, count - at);
    float scale;
    std::memcpy(&scale, source, sizeof(scale));
    const auto* const codes = reinterpret_cast<const int8_t*>(source + sizeof(scale));
    TKV_VECTORIZE
    for (size_t i = 0; i < length; ++i) {
      const float value = static_cast<float>(codes[i]) * scale;
      target[at + i] = kInto == Into::kAdd ? target[at + i] + value : value;
    }
    source += sizeof(scale) + length;
  }
}

// Calls f(tag, i) for whole vectors, and then for single elements.
template <class F>
HWY_INLINE void ForVectors(size_t count, F f) {
  const hn::CappedTag<float, kLargestVector> tag;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) f(tag, i);
  for (; i < count; ++i) f(one, i);
}

// Writes x, limited to the largest value of the format, to `limited`.  If a gradient is not finite,
// writes x unchanged and keeps the residual.
size_t Limit(const float* gradient, float* residual, float largest, float* limited, size_t count) {
  size_t lost = 0;
  ForVectors(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto before = hn::LoadU(tag, residual + i);
    const auto given = hn::LoadU(tag, gradient + i);
    const auto sum = hn::Add(before, given);
    const auto is_finite = IsFinite(tag, given);
    lost += hn::Lanes(tag) - hn::CountTrue(tag, is_finite);
    hn::StoreU(hn::IfThenElse(is_finite, Within(tag, kLargest, sum), before), tag, residual + i);
    hn::StoreU(hn::IfThenElse(is_finite, Within(tag, largest, sum), sum), tag, limited + i);
  });
  return lost;
}

void KeepRest(const float* sent, float* residual, size_t count) {
  ForVectors(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(tag, sent + i);
    const auto rest = hn::LoadU(tag, residual + i);
    hn::StoreU(hn::IfThenElse(IsFinite(tag, value), hn::Sub(rest, value), rest), tag, residual + i);
  });
}

size_t EncodeHalf(DType dtype, float largest, const float* gradient, float* residual,
                  std::byte* target, size_t count) {
  size_t lost = 0;
  HWY_ALIGN float block[kEncodedElements];
  for (size_t at = 0; at < count; at += kEncodedElements) {
    const size_t length = HWY_MIN(size_t{kEncodedElements}, count - at);
    std::byte* const out = target + 2 * at;
    lost += Limit(gradient + at, residual + at, largest, block, length);
    Convert(DType::kF32, block, dtype, out, length);
    Convert(dtype, out, DType::kF32, block, length);
    KeepRest(block, residual + at, length);
  }
  return lost;
}

template <Into kInto>
void DecodeHalf(DType dtype, const std::byte* source, float* target, size_t count) {
  if constexpr (kInto == Into::kWrite) return Convert(dtype, source, DType::kF32, target, count);
  HWY_ALIGN float block[kEncodedElements];
  for (size_t at = 0; at < count; at += kEncodedElements) {
    const size_t length = HWY_MIN(size_t{kEncodedElements}, count - at);
    Convert(dtype, source + 2 * at, DType::kF32, block, length);
    TKV_VECTORIZE
    for (size_t i = 0; i < length; ++i) target[at + i] += block[i];
  }
}

template <Into kInto>
void DecodeFloats(const std::byte* source, float* target, size_t count) {
  if constexpr (kInto == Into::kWrite) {
    if (count > 0) std::memcpy(target, source, count * sizeof(float));
    return;
  }
  ForVectors(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(tag, reinterpret_cast<const float*>(source) + i);
    hn::StoreU(hn::Add(hn::LoadU(tag, target + i), value), tag, target + i);
  });
}

constexpr float kLargestF16 = 65504.0F;
constexpr float kLargestBf16 = 0x1.FEp127F;

size_t EncodeDispatch(const Coding& coding, const float* gradient, float* residual, void* target,
                      size_t count) {
  auto* const out = static_cast<std::byte*>(target);
  switch (coding.encoding) {
    case Encoding::kF16:
      return EncodeHalf(DType::kF16, kLargestF16, gradient, residual, out, count);
    case Encoding::kBf16:
      return EncodeHalf(DType::kBF16, kLargestBf16, gradient, residual, out, count);
    case Encoding::kInt8:
      return EncodeInt8(gradient, residual, out, count);
    case Encoding::k2Bit:
      return EncodeWords<TwoBit>(coding.threshold, gradient, residual, out, count);
    case Encoding::k1Bit:
      return EncodeWords<OneBit>(coding.threshold, gradient, residual, out, count);
    default:
      return 0;
  }
}

template <Into kInto>
void DecodeInto(const Coding& coding, const void* source, float* target, size_t count) {
  const auto* const in = static_cast<const std::byte*>(source);
  switch (coding.encoding) {
    case Encoding::kF32:
      return DecodeFloats<kInto>(in, target, count);
    case Encoding::kF16:
      return DecodeHalf<kInto>(DType::kF16, in, target, count);
    case Encoding::kBf16:
      return DecodeHalf<kInto>(DType::kBF16, in, target, count);
    case Encoding::kInt8:
      return DecodeInt8<kInto>(in, target, count);
    case Encoding::k2Bit:
      return DecodeWords<TwoBit, kInto>(coding.threshold, in, target, count);
    case Encoding::k1Bit:
      return DecodeWords<OneBit, kInto>(coding.threshold, in, target, count);
    default:
      return;
  }
}

void DecodeDispatch(const Coding& coding, const void* source, float* target, size_t count,
                    Into into) {
  if (into == Into::kWrite) return DecodeInto<Into::kWrite>(coding, source, target, count);
  DecodeInto<Into::kAdd>(coding, source, target, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace tkv::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tkv::kernels {

TKV_EXPORT(EncodeDispatch);
TKV_EXPORT(DecodeDispatch);
TKV_EXPORT(AddLoop);

size_t Encode(const Coding& coding, const float* gradient, float* residual, void* target,
              size_t count) {
  return TKV_DISPATCH(EncodeDispatch)(coding, gradient, residual, target, count);
}

void Decode(const Coding& coding, const void* source, float* target, size_t count, Into into) {
  TKV_DISPATCH(DecodeDispatch)(coding, source, target, count, into);
}

size_t AddToResidual(const float* gradient, float* residual, size_t count) {
  return TKV_DISPATCH(AddLoop)(gradient, residual, count);
}

}  // namespace tkv::kernels
#endif
