#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/operation.cc"
#include <cmath>
#include "hwy/foreach_target.h"

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kernels.h"
#include "kernels/operation.h"

HWY_BEFORE_NAMESPACE();
namespace tkv::kernels {
namespace HWY_NAMESPACE {

// All operations share this loop; the compiler vectorises it for each instruction set.  A scalar
// operand is read once.
template <typename T, Op kOp, int kMask>
void OpLoop(const void* pa, const void* pb, const void* pc, void* po, size_t count) {
  const auto* a = static_cast<const T*>(pa);
  const auto* b = static_cast<const T*>(pb);
  const auto* c = static_cast<const T*>(pc);
  auto* out = static_cast<T*>(po);
  constexpr int kArity = Arity(kOp);
  const T a0 = (kMask & 1) != 0 ? *a : T{};
  const T b0 = kArity > 1 && (kMask & 2) != 0 ? *b : T{};
  const T c0 = kArity > 2 && (kMask & 4) != 0 ? *c : T{};
  TKV_VECTORIZE
  for (size_t i = 0; i < count; ++i) {
    const T x = (kMask & 1) != 0 ? a0 : a[i];
    const T y = kArity < 2 ? T{} : ((kMask & 2) != 0 ? b0 : b[i]);
    const T z = kArity < 3 ? T{} : ((kMask & 4) != 0 ? c0 : c[i]);
    out[i] = Apply<T, kOp>(x, y, z);
  }
}

template <typename T, Op kOp>
OpFunction ByMask(ScalarMask mask) {
  constexpr int kArity = Arity(kOp);
  if (mask >= (1 << kArity) - 1) return nullptr;  // no operand is an array, or a bit has no operand
  if constexpr (kArity == 1) {
    return OpLoop<T, kOp, 0>;
  } else if constexpr (kArity == 2) {
    constexpr OpFunction kLoops[] = {OpLoop<T, kOp, 0>, OpLoop<T, kOp, 1>, OpLoop<T, kOp, 2>};
    return kLoops[mask];
  } else {
    constexpr OpFunction kLoops[] = {OpLoop<T, kOp, 0>, OpLoop<T, kOp, 1>, OpLoop<T, kOp, 2>,
                                     OpLoop<T, kOp, 3>, OpLoop<T, kOp, 4>, OpLoop<T, kOp, 5>,
                                     OpLoop<T, kOp, 6>};
    return kLoops[mask];
  }
}

template <typename T>
OpFunction ByOp(Op op, ScalarMask mask) {
  switch (op) {
    case Op::kAdd:
      return ByMask<T, Op::kAdd>(mask);
    case Op::kSub:
      return ByMask<T, Op::kSub>(mask);
    case Op::kMul:
      return ByMask<T, Op::kMul>(mask);
    case Op::kMin:
      return ByMask<T, Op::kMin>(mask);
    case Op::kMax:
      return ByMask<T, Op::kMax>(mask);
    case Op::kLess:
      return ByMask<T, Op::kLess>(mask);
    case Op::kLessEqual:
      return ByMask<T, Op::kLessEqual>(mask);
    case Op::kGreater:
      return ByMask<T, Op::kGreater>(mask);
    case Op::kGreaterEqual:
      return ByMask<T, Op::kGreaterEqual>(mask);
    case Op::kEqual:
      return ByMask<T, Op::kEqual>(mask);
    case Op::kNotEqual:
      return ByMask<T, Op::kNotEqual>(mask);
    case Op::kNeg:
      return ByMask<T, Op::kNeg>(mask);
    case Op::kAbs:
      return ByMask<T, Op::kAbs>(mask);
    case Op::kSelect:
      return ByMask<T, Op::kSelect>(mask);
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case Op::kDiv:
        return ByMask<T, Op::kDiv>(mask);
      case Op::kSqrt:
        return ByMask<T, Op::kSqrt>(mask);
      case Op::kSign:
        return ByMask<T, Op::kSign>(mask);
      default:
        break;
    }
  }
  return nullptr;
}

OpFunction ResolveDispatch(Op op, DType dtype, ScalarMask mask) {
  switch (dtype) {
    case DType::kF32:
      return ByOp<float>(op, mask);
    case DType::kF64:
      return ByOp<double>(op, mask);
    case DType::kI8:
      return ByOp<int8_t>(op, mask);
    case DType::kU8:
      return ByOp<uint8_t>(op, mask);
    case DType::kI16:
      return ByOp<int16_t>(op, mask);
    case DType::kI32:
      return ByOp<int32_t>(op, mask);
    case DType::kI64:
      return ByOp<int64_t>(op, mask);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tkv::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tkv::kernels {

TKV_EXPORT(ResolveDispatch);

OpFunction ResolveOp(Op op, DType dtype, ScalarMask scalars) {
  return TKV_DISPATCH(ResolveDispatch)(op, dtype, scalars);
}

}  // namespace tkv::kernels
#endif
