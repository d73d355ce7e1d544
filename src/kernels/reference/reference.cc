#include "kernels/reference/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tkv::kernels::reference {
namespace {

// A binary float format of 16 bits: `fraction` stored bits, exponents down to `emin`.
struct Format {
  int fraction;
  int emin;
  int bias;
};
constexpr Format kF16{10, -14, 15};
constexpr Format kBF16{7, -126, 127};

double Decode(uint16_t bits, const Format& format) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits & 0x7FFF) >> format.fraction;
  const int fraction = bits & ((1 << format.fraction) - 1);
  const int special = 0x7FFF >> format.fraction;
  if (exponent == special) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, format.emin - format.fraction);
  return sign *
         std::ldexp(fraction + (1 << format.fraction), exponent - format.bias - format.fraction);
}

// Rounds |value| to a multiple of its quantum with nearbyint (ties to even), then reads off the
// bits.
uint16_t Encode(double value, const Format& format) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto special = static_cast<uint16_t>((0x7FFF >> format.fraction) << format.fraction);
  if (std::isnan(value))
    return static_cast<uint16_t>(sign | special | (1 << (format.fraction - 1)));
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  int exponent = std::isinf(magnitude) ? format.bias + 1 : std::ilogb(magnitude);
  exponent = std::max(exponent, format.emin);
  const double quantum = std::ldexp(1.0, exponent - format.fraction);
  double units = std::isinf(magnitude) ? 0 : std::nearbyint(magnitude / quantum);
  if (units == std::ldexp(1.0, format.fraction + 1)) {
    units /= 2;
    ++exponent;
  }
  if (exponent > format.bias) return static_cast<uint16_t>(sign | special);
  const bool normal = units >= std::ldexp(1.0, format.fraction);
  const int biased = normal ? exponent + format.bias : 0;
  const auto fraction = static_cast<int>(units) & ((1 << format.fraction) - 1);
  return static_cast<uint16_t>(sign | (biased << format.fraction) | fraction);
}

double LoadFloat(DType dtype, const void* source, size_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(static_cast<const float*>(source)[i]);
    case DType::kF64:
      return static_cast<const double*>(source)[i];
    case DType::kF16:
      return Decode(static_cast<const uint16_t*>(source)[i], kF16);
    default:
      return Decode(static_cast<const uint16_t*>(source)[i], kBF16);
  }
}

template <typename T>
void SumIntegers(std::span<const void* const> sources, void* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint64_t sum = 0;
    for (const void* source : sources)
      sum += static_cast<uint64_t>(static_cast<const T*>(source)[i]);
    static_cast<T*>(target)[i] = static_cast<T>(sum);
  }
}

template <typename T>
void SumFloats(DType dtype, std::span<const void* const> sources, void* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T sum = static_cast<T>(LoadFloat(dtype, sources[0], i));
    for (size_t k = 1; k < sources.size(); ++k)
      sum += static_cast<T>(LoadFloat(dtype, sources[k], i));
    static_cast<T*>(target)[i] = sum;
  }
}

template <typename T>
T Clip(T g, T clip) {
  if (g > clip) return clip;
  return g < -clip ? -clip : g;
}

template <typename T>
void Update(Fused kind, std::span<const double> scalars, const T* grad, T* value,
            void* const* states, size_t count) {
  T s[kFusedScalarsMax] = {};
  for (size_t i = 0; i < scalars.size(); ++i) s[i] = static_cast<T>(scalars[i]);
  for (size_t i = 0; i < count; ++i) {
    const T scaled = grad[i] * s[0];
    if (kind == Fused::kAdam) {
      T& mean = static_cast<T*>(states[0])[i];
      T& var = static_cast<T*>(states[1])[i];
      const T g = Clip<T>(scaled + value[i] * s[2], s[1]);
      mean = mean * s[4] + g * s[5];
      var = var * s[6] + g * g * s[7];
      value[i] = value[i] - mean * s[3] / (std::sqrt(var) + s[8]);
      continue;
    }
    if (kind == Fused::kAdamW) {
      T& mean = static_cast<T*>(states[0])[i];
      T& var = static_cast<T*>(states[1])[i];
      const T g = Clip<T>(scaled, s[1]);
      mean = mean * s[4] + g * s[5];
      var = var * s[6] + g * g * s[7];
      value[i] = value[i] * s[2] - mean * s[3] / (std::sqrt(var) / s[9] + s[8]);
      continue;
    }
    if (kind == Fused::kAdaGrad) {
      T& history = static_cast<T*>(states[0])[i];
      const T g = Clip<T>(scaled, s[1]);
      history = history + g * g;
      value[i] = value[i] - (g / std::sqrt(history + s[4]) + value[i] * s[2]) * s[3];
      continue;
    }
    const T step = (Clip<T>(scaled, s[1]) + value[i] * s[2]) * s[3];
    if (kind == Fused::kSgd) {
      value[i] = value[i] - step;
    } else {
      T& mom = static_cast<T*>(states[0])[i];
      mom = mom * s[4] - step;
      value[i] = value[i] + mom;
    }
  }
}

}  // namespace

void Sum(DType dtype, std::span<const void* const> sources, void* target, size_t count) {
  switch (dtype) {
    case DType::kF64:
      return SumFloats<double>(dtype, sources, target, count);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return SumFloats<float>(dtype, sources, target, count);
    case DType::kI8:
      return SumIntegers<int8_t>(sources, target, count);
    case DType::kU8:
      return SumIntegers<uint8_t>(sources, target, count);
    case DType::kI16:
      return SumIntegers<int16_t>(sources, target, count);
    case DType::kI32:
      return SumIntegers<int32_t>(sources, target, count);
    default:
      return SumIntegers<int64_t>(sources, target, count);
  }
}

void Convert(DType from, const void* source, DType to, void* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double value = LoadFloat(from, source, i);
    switch (to) {
      case DType::kF32:
        static_cast<float*>(target)[i] = static_cast<float>(value);
        break;
      case DType::kF64:
        static_cast<double*>(target)[i] = value;
        break;
      case DType::kF16:
        static_cast<uint16_t*>(target)[i] = Encode(value, kF16);
        break;
      default:
        static_cast<uint16_t*>(target)[i] = Encode(value, kBF16);
        break;
    }
  }
}

double ReduceSum(DType dtype, const void* source, size_t count) {
  double sums[16] = {};
  for (size_t i = 0; i < count; ++i) sums[i % 16] += LoadFloat(dtype, source, i);
  for (size_t k = 0; k < 8; ++k) sums[k] += sums[k + 8];
  for (size_t k = 0; k < 4; ++k) sums[k] += sums[k + 4];
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

void UpdateFused(Fused kind, DType dtype, std::span<const double> scalars, const void* grad,
                 void* value, void* const* states, size_t count) {
  if (dtype == DType::kF64) {
    Update(kind, scalars, static_cast<const double*>(grad), static_cast<double*>(value), states,
           count);
  } else {
    Update(kind, scalars, static_cast<const float*>(grad), static_cast<float*>(value), states,
           count);
  }
}

namespace {

// Decodes one element in a format of kernels/encode.h.
float Element(const Coding& coding, const std::byte* source, size_t i) {
  const auto byte = [&](size_t at) { return std::to_integer<unsigned>(source[at]); };
  switch (coding.encoding) {
    case Encoding::kF32: {
      float value;
      std::memcpy(&value, source + i * sizeof(value), sizeof(value));
      return value;
    }
    case Encoding::kF16:
    case Encoding::kBf16: {
      const auto bits = static_cast<uint16_t>(byte(2 * i) | byte(2 * i + 1) << 8);
      const Format& format = coding.encoding == Encoding::kF16 ? kF16 : kBF16;
      return static_cast<float>(Decode(bits, format));
    }
    case Encoding::kInt8: {
      const std::byte* const block = source + i / kEncodedElements * (kEncodedElements + 4);
      float scale;
      std::memcpy(&scale, block, sizeof(scale));
      int8_t code;
      std::memcpy(&code, block + 4 + i % kEncodedElements, 1);
      return static_cast<float>(code) * scale;
    }
    case Encoding::k2Bit: {
      const unsigned code = byte(i / 4) >> (6 - 2 * (i % 4)) & 3U;
      return code == 3 ? coding.threshold : code == 2 ? -coding.threshold : 0.0F;
    }
    default:
      return (byte(i / 8) >> (7 - i % 8) & 1U) != 0 ? 1.0F : -1.0F;
  }
}

void SetBits(std::byte* byte, unsigned bits) { *byte |= static_cast<std::byte>(bits); }

}  // namespace

size_t Encode(const Coding& coding, const float* gradient, float* residual, void* target,
              size_t count) {
  auto* const out = static_cast<std::byte*>(target);
  std::memset(out, 0, EncodedBytes(coding.encoding, count));
  size_t lost = 0;
  float scale = 0;
  for (size_t i = 0; i < count; ++i) {
    const float sum = residual[i] + gradient[i];
    const bool is_finite = std::isfinite(gradient[i]);
    if (!is_finite) ++lost;
    constexpr float kLargest = std::numeric_limits<float>::max();
    const float x = is_finite ? std::fmax(-kLargest, std::fmin(kLargest, sum)) : residual[i];
    residual[i] = x;
    const float t = coding.threshold;
    switch (coding.encoding) {
      case Encoding::kF16:
      case Encoding::kBf16: {
        const bool is_f16 = coding.encoding == Encoding::kF16;
        const float largest = is_f16 ? 65504.0F : std::bit_cast<float>(0x7F7F0000U);
        const float sent = is_finite ? std::fmax(-largest, std::fmin(largest, x)) : sum;
        const uint16_t bits = Encode(static_cast<double>(sent), is_f16 ? kF16 : kBF16);
        std::memcpy(out + 2 * i, &bits, sizeof(bits));
        if (is_finite) residual[i] = x - Element(coding, out, i);
        break;
      }
      case Encoding::k2Bit:
        if (x >= t) {
          SetBits(out + i / 4, 3U << (6 - 2 * (i % 4)));
          residual[i] = x - t;
        } else if (x <= -t) {
          SetBits(out + i / 4, 2U << (6 - 2 * (i % 4)));
          residual[i] = x + t;
        }
        break;
      case Encoding::k1Bit:
        if (x > t) SetBits(out + i / 8, 1U << (7 - i % 8));
        residual[i] = x > t ? x - 1 : x + 1;
        break;
      default:
        break;  // see below: the scale needs all elements of a block
    }
  }
  for (size_t at = 0; coding.encoding == Encoding::kInt8 && at < count; at += kEncodedElements) {
    std::byte* const block = out + at / kEncodedElements * (kEncodedElements + 4);
    const size_t end = std::min(count, at + kEncodedElements);
    float largest = 0;
    for (size_t i = at; i < end; ++i) largest = std::fmax(largest, std::fabs(residual[i]));
    scale = largest / 127;
    if (!std::isfinite(127 * scale)) scale = std::nextafter(scale, 0.0F);
    if (!std::isnormal(scale)) scale = 0;
    std::memcpy(block, &scale, sizeof(scale));
    for (size_t i = at; i < end && scale != 0; ++i) {
      const auto code = static_cast<int8_t>(std::nearbyint(residual[i] / scale));
      std::memcpy(block + 4 + (i - at), &code, 1);
      residual[i] -= static_cast<float>(code) * scale;
    }
  }
  return lost;
}

void Decode(const Coding& coding, const void* source, float* target, size_t count, Into into) {
  for (size_t i = 0; i < count; ++i) {
    const float value = Element(coding, static_cast<const std::byte*>(source), i);
    target[i] = into == Into::kAdd ? target[i] + value : value;
  }
}

}  // namespace tkv::kernels::reference
