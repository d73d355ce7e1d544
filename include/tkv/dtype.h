// Element types.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tkv/api.h"

namespace tkv {

// wire value: never renumber.  The mapping to DLPack is in dlpack.h.
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

// Whether arithmetic on `dtype` is that of floats: the 8-bit ones, which are stored only, are not.
TKV_API bool IsFloat(DType dtype) noexcept;

// Whether values can be summed and updated; those of bool, the 8-bit floats, the unsigned integers
// of more than 8 bits and the complex numbers are stored and assigned only.
TKV_API bool IsArithmetic(DType dtype) noexcept;

// The type that sums and updates of `dtype` compute in: f32 for the 16-bit floats, else `dtype`
// itself.
TKV_API DType ComputeType(DType dtype) noexcept;

}  // namespace tkv
