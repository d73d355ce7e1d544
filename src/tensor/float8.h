// Conversions of single 8-bit floats by arithmetic, the same on every machine.
//
// Rounding is to nearest even.  E5M2 overflows to infinity.  E4M3FN has no infinity: values that
// are too large become NaN.  A NaN keeps its sign.
//   source  Micikevicius et al. 2022, FP8 Formats for Deep Learning, table 1; OCP OFP8 1.0 §5

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tkv {

struct Float8Format {
  int mantissa_bits;
  int bias;
  uint8_t largest;   // bits of the largest finite magnitude
  uint8_t overflow;  // bits of the result for larger magnitudes
  uint8_t nan;
};

inline constexpr Float8Format kE4M3FN{3, 7, 0x7E, 0x7F, 0x7F};
inline constexpr Float8Format kE5M2{2, 15, 0x7B, 0x7C, 0x7E};

inline uint8_t ToFloat8(double value, const Float8Format& format) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | format.nan;
  // Values above this are too large for every format; the limit keeps the exponent below small.
  if (magnitude >= 0x1p20) return sign | format.overflow;
  if (magnitude == 0) return sign;
  const int low = 1 - format.bias;  // exponent of the smallest normal number, and of subnormals
  const int exponent = std::max(std::ilogb(magnitude), low);
  // In units of the last place.  A result of at least 2^mantissa_bits is a normal number, so a
  // carry into the exponent is right.
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const int bits = ((exponent - low) << format.mantissa_bits) + static_cast<int>(units);
  return sign | (bits > format.largest ? format.overflow : static_cast<uint8_t>(bits));
}

inline float FromFloat8(uint8_t bits, const Float8Format& format) {
  const int magnitude = bits & 0x7F;
  float value = 0;
  if (magnitude > format.largest) {
    value = magnitude == format.overflow && format.overflow != format.nan
                ? std::numeric_limits<float>::infinity()
                : std::numeric_limits<float>::quiet_NaN();
  } else {
    const int one = 1 << format.mantissa_bits;
    const int exponent = magnitude >> format.mantissa_bits;
    const int mantissa = magnitude & (one - 1);
    const int units = exponent == 0 ? mantissa : mantissa + one;
    value = std::ldexp(static_cast<float>(units),
                       std::max(exponent, 1) - format.bias - format.mantissa_bits);
  }
  return (bits & 0x80) != 0 ? -value : value;
}

}  // namespace tkv
