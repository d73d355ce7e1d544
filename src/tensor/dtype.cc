#include "tkv/dtype.h"

#include <array>

namespace tkv {
namespace {

struct Entry {
  const char* name;
  size_t bytes;
};

constexpr std::array<Entry, 16> kTable = {{{"float32", 4},
                                           {"float64", 8},
                                           {"float16", 2},
                                           {"bfloat16", 2},
                                           {"int8", 1},
                                           {"uint8", 1},
                                           {"int16", 2},
                                           {"int32", 4},
                                           {"int64", 8},
                                           {"bool", 1},
                                           {"float8_e4m3fn", 1},
                                           {"float8_e5m2", 1},
                                           {"uint16", 2},
                                           {"uint32", 4},
                                           {"uint64", 8},
                                           {"complex64", 8}}};

}  // namespace

size_t ItemSize(DType dtype) noexcept { return kTable[static_cast<size_t>(dtype)].bytes; }

const char* Name(DType dtype) noexcept { return kTable[static_cast<size_t>(dtype)].name; }

std::optional<DType> DTypeFromName(std::string_view name) noexcept {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (name == kTable[i].name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool IsFloat(DType dtype) noexcept { return dtype <= DType::kBF16; }

bool IsArithmetic(DType dtype) noexcept { return dtype <= DType::kI64; }

DType ComputeType(DType dtype) noexcept {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype;
}

}  // namespace tkv
