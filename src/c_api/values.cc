#include "c_api/values.h"

#include <algorithm>
#include <span>

#include "c_api/boundary.h"

namespace tkv::c_api {
namespace {

static_assert(TKV_F32 == int(DType::kF32) && TKV_F64 == int(DType::kF64) &&
              TKV_F16 == int(DType::kF16) && TKV_BF16 == int(DType::kBF16) &&
              TKV_I8 == int(DType::kI8) && TKV_U8 == int(DType::kU8) &&
              TKV_I16 == int(DType::kI16) && TKV_I32 == int(DType::kI32) &&
              TKV_I64 == int(DType::kI64) && TKV_BOOL == int(DType::kBool) &&
              TKV_F8E4M3FN == int(DType::kF8E4M3FN) && TKV_F8E5M2 == int(DType::kF8E5M2) &&
              TKV_U16 == int(DType::kU16) && TKV_U32 == int(DType::kU32) &&
              TKV_U64 == int(DType::kU64) && TKV_C64 == int(DType::kC64) &&
              TKV_C64 == int(kLastDType));
static_assert(TKV_CPU == int(DeviceKind::kCpu) && TKV_GPU == int(DeviceKind::kGpu));

bool IsDType(tkv_dtype number) { return number >= 0 && number <= TKV_C64; }

}  // namespace

DType DTypeOf(tkv_dtype number, const char* verb) {
  if (IsDType(number)) return static_cast<DType>(number);
  throw Fail(Code::kInvalidArgument, "{}: dtype {}, 0 to {} are possible", verb,
             static_cast<int>(number), static_cast<int>(TKV_C64));
}

Context ContextOf(tkv_context context, const char* verb) {
  if (context.device == TKV_CPU || context.device == TKV_GPU) {
    return {static_cast<DeviceKind>(context.device), context.index};
  }
  throw Fail(Code::kInvalidArgument, "{}: device {}, TKV_CPU ({}) and TKV_GPU ({}) are possible",
             verb, static_cast<int>(context.device), static_cast<int>(TKV_CPU),
             static_cast<int>(TKV_GPU));
}

tkv_context ToC(const tkv::Context& context) {
  return {static_cast<tkv_device>(context.kind), context.index};
}

Shape ShapeOf(const int64_t* shape, int32_t rank, const char* verb) {
  if (rank < 0) throw Fail(Code::kInvalidArgument, "{}: rank {}", verb, rank);
  if (rank > 0) CheckNotNull(shape, verb, "the shape");
  return Shape(std::span<const int64_t>(shape, static_cast<size_t>(rank)));
}

std::chrono::nanoseconds Patience(int64_t milliseconds, const char* verb) {
  constexpr int64_t kLongest = int64_t{100} * 365 * 24 * 3600 * 1000;  // a century
  if (milliseconds < 0) {
    throw Fail(Code::kInvalidArgument, "{}: patience of {} ms", verb, milliseconds);
  }
  return std::chrono::milliseconds(std::min(milliseconds, kLongest));
}

}  // namespace tkv::c_api

using namespace tkv::c_api;

size_t tkv_dtype_size(tkv_dtype dtype) {
  return IsDType(dtype) ? tkv::ItemSize(static_cast<tkv::DType>(dtype)) : 0;
}
const char* tkv_dtype_name(tkv_dtype dtype) {
  return IsDType(dtype) ? tkv::Name(static_cast<tkv::DType>(dtype)) : "";
}
