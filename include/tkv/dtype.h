// Element types.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tkv/api.h"

namespace tkv {

// The element type of an array.  wire value: never renumber.  dlpack.cc maps it to DLPack.
enum class DType : uint8_t {
  kF32 = 0,
  kF64 = 1,
  kF16 = 2,
  kBF16 = 3,
  kI8 = 4,
  kU8 = 5,
  kI16 = 6,
  kI32 = 7,
  kI64 = 8,
  kBool = 9,
  kF8E4M3FN = 10,
  kF8E5M2 = 11,
  kU16 = 12,
  kU32 = 13,
  kU64 = 14,
  kC64 = 15,  // two f32: real and imaginary part
};
inline constexpr DType kLastDType = DType::kC64;

// Bytes of one element.
TKV_API size_t ItemSize(DType dtype) noexcept;

// NumPy's name, or that of ml_dtypes: "float32", "bfloat16", "float8_e5m2".
TKV_API const char* Name(DType dtype) noexcept;
TKV_API std::optional<DType> DTypeFromName(std::string_view name) noexcept;

// Returns true if arithmetic on `dtype` is that of floats.  False for 8-bit floats, which can only
// be stored.
TKV_API bool IsFloat(DType dtype) noexcept;

// Returns true if values can be summed and updated.  Values of bool, 8-bit floats, unsigned
// integers of more than 8 bits and complex numbers can only be stored and assigned.
TKV_API bool IsArithmetic(DType dtype) noexcept;

// Returns the type in which sums and updates of `dtype` are computed: f32 for the 16-bit floats,
// else `dtype` itself.
TKV_API DType ComputeType(DType dtype) noexcept;

}  // namespace tkv
