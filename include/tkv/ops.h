// Array arithmetic: free functions, run by the evaluator that runs update programs.
//
// Operands have one shape and one arithmetic dtype; the result has the same shape and dtype, in the
// context of the first array.  Operations on float16 and bfloat16 compute in float32 and round once
// per function.  Comparisons give 1 and 0 in the operands' dtype.
//   throws  kInvalidArgument  shapes or dtypes differ; a bool array; an operation that the dtype
//                             does not have (integers have no division); a scalar that an integer
//                             dtype cannot hold; a read-only `out`

#pragma once

#include <string_view>

#include "tkv/api.h"
#include "tkv/ndarray.h"

namespace tkv {

enum class BinaryOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMin,
  kMax,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
};
enum class UnaryOp : uint8_t { kNeg, kAbs, kSqrt, kSign };
inline constexpr int kBinaryOps = static_cast<int>(BinaryOp::kNotEqual) + 1;
inline constexpr int kUnaryOps = static_cast<int>(UnaryOp::kSign) + 1;

// Returns the name of the operation in update programs: "add", "lt".
TKV_API std::string_view Name(BinaryOp op);
TKV_API std::string_view Name(UnaryOp op);

TKV_API NDArray Binary(BinaryOp op, const NDArray& a, const NDArray& b);
TKV_API NDArray Binary(BinaryOp op, const NDArray& a, double b);
TKV_API NDArray Binary(BinaryOp op, double a, const NDArray& b);
TKV_API NDArray Unary(UnaryOp op, const NDArray& a);

// The same, written into `out`, which must be an operand or share no memory with them.
TKV_API void BinaryInto(BinaryOp op, const NDArray& a, const NDArray& b, const NDArray& out);
TKV_API void BinaryInto(BinaryOp op, const NDArray& a, double b, const NDArray& out);

// Sets every element to `value`, rounded to the dtype.
TKV_API void Fill(const NDArray& array, double value);
// The same for an integer, which a double might not represent exactly.
TKV_API void FillInteger(const NDArray& array, int64_t value);

// Returns the same values in another float dtype, rounded once.
TKV_API NDArray ConvertFloat(const NDArray& array, DType dtype);

// Returns a 64-bit digest of the elements' bytes in C order, to notice that an array has changed.
// Equal bytes have equal digests; an array on a GPU is copied to the host.
//   source  XXH3 of sections of 1 MiB, and of their digests
TKV_API uint64_t Digest(const NDArray& array);

}  // namespace tkv
