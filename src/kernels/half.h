// Conversions of single 16-bit floats by integer arithmetic, the same on every machine.
//
// Rounding is to nearest even.  Overflow gives infinity.  A NaN stays a (quiet) NaN with the top of
// its payload.
//   source  IEEE 754-2019 §4.3.1; the results of VCVTPS2PH

#pragma once

#include <bit>
#include <cstdint>

namespace tkv::kernels {

inline float F32FromBF16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t BF16FromF32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<uint16_t>((is_nan ? bits | 0x00400000U : rounded) >> 16);
}

inline float F32FromF16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
  const uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity, NaN (made quiet, as the hardware does)
    const uint32_t quiet = magnitude > 0x7C00U ? 0x00400000U : 0U;
    return std::bit_cast<float>(sign | 0x7F800000U | ((magnitude & 0x3FFU) << 13) | quiet);
  }
  if (magnitude >= 0x0400U) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

inline uint16_t F16FromF32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  }
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65520 and up
  if (magnitude >= 0x38800000U) {                                              // normal in f16
    const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
  }
  // Subnormal in f16: adding 0.5 aligns the value to 2^-24 and the adder rounds to nearest even.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
}

// Rounds to the odd neighbour if inexact, so that a later rounding to fewer bits is right (Boldo
// and Melquiond, 2008).
inline float F32FromF64RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const double magnitude = value < 0 ? -value : value;
  const double rounded = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  if (rounded > magnitude) bits -= 1;
  return std::bit_cast<float>(bits | 1U);
}

}  // namespace tkv::kernels
