// Pure functions over spans of host memory: no threads, no allocation, no errors.
//
// Each has a twin in kernels/reference.  Pointers need the alignment of their element only; counts
// may be 0. Every result is the same, bit for bit, on every instruction set: no contraction, no
// reordering.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tkv/dtype.h"

namespace tkv::kernels {

// How a kernel writes memory that is not read soon: through the cache, or past it (non-temporal).
// Writing past the cache saves the read for ownership and leaves the cache to other data.
enum class Write : uint8_t { kCached, kStreaming };

// target[i] = ((sources[0][i] + sources[1][i]) + sources[2][i]) ...  Integers wrap as two's
// complement.
//   shape  sources: at least one, `dtype`, not bool; target: ComputeType(dtype), so f32 for the
//   16-bit floats
void Sum(DType dtype, std::span<const void* const> sources, void* target, size_t count,
         Write write);

// Returns the sum of one array in f64.  Element i joins partial sum i % 16.  Then the upper eight
// partial sums are added to the lower eight, then four, two and one.
//   shape  source: f32 or f64 as `dtype` says
double ReduceSum(DType dtype, const void* source, size_t count);

// Makes streaming writes visible to other threads; called once at the end of a part of the work.
void Fence();

// Copies bytes between ranges that do not overlap.
void Copy(const void* source, void* target, size_t bytes, Write write);

// Converts between float32, float64, float16 and bfloat16: one rounding, to nearest even; NaN stays
// NaN.
void Convert(DType from, const void* source, DType to, void* target, size_t count);

// An elementwise operation of an update program.  Comparisons give 1 or 0 in the same type.
//   kMin, kMax  a < b ? a : b and a > b ? a : b, so a NaN in `b` is the result and one in `a` is
//               not
enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kMin,
  kMax,  // every arithmetic type
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kNeg,
  kAbs,
  kSelect,  // a != 0 ? b : c
  kDiv,
  kSqrt,
  kSign,  // floats only
  kPow,
  kFloor,
  kExp,
  kLog,
  kCos,  // scalars only
};
inline constexpr int kOpCount = static_cast<int>(Op::kCos) + 1;
constexpr bool IsOfScalarsOnly(Op op) { return op >= Op::kPow; }

// Bit i is set if operand i is one element for the whole tile instead of an array.
using ScalarMask = uint8_t;

// `out` may be one of the operands.  Unused operands are null.
using OpFunction = void (*)(const void* a, const void* b, const void* c, void* out, size_t count);

// Returns the loop for `op` on ComputeType `dtype`.  Returns null if the type does not have the
// operation, or if the mask makes every operand a scalar.
OpFunction ResolveOp(Op op, DType dtype, ScalarMask scalars);

// The optimizers that have a kernel of their own.  Each equals its program in update/builtin.cc,
// operation by operation.
enum class Fused : uint8_t { kNone, kSgd, kMomentum, kAdam, kAdamW, kAdaGrad };

// Scalars by position, already in f64; each is rounded to the compute type once.
//   kSgd       rescale, clip, wd, lr
//   kMomentum  rescale, clip, wd, lr, momentum                                  states: mom
//   kAdam      rescale, clip, wd, lr_t, beta1, 1-beta1, beta2, 1-beta2, epsilon  states: mean, var
//   kAdamW     rescale, clip, 1-lr*wd, lr_t, beta1, 1-beta1, beta2, 1-beta2, epsilon,
//              sqrt(1-beta2^t)                                                   states: mean, var
//   kAdaGrad   rescale, clip, wd, lr, epsilon                                    states: history
inline constexpr size_t kFusedScalarsMax = 10;

// Runs a fused optimizer.
//   shape  grad, value, states: f32 or f64 as `dtype` says; value and states are updated in place
void UpdateFused(Fused kind, DType dtype, std::span<const double> scalars, const void* grad,
                 void* value, void* const* states, size_t count);

}  // namespace tkv::kernels
