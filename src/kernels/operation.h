// The effect of one operation of an update program on one element.  Every loop and the oracle share
// this definition.

#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/kernels.h"

namespace tkv::kernels {

constexpr int Arity(Op op) {
  switch (op) {
    case Op::kNeg:
    case Op::kAbs:
    case Op::kSqrt:
    case Op::kSign:
    case Op::kFloor:
    case Op::kExp:
    case Op::kLog:
    case Op::kCos:
      return 1;
    case Op::kSelect:
      return 3;
    default:
      return 2;
  }
}

// Integers wrap: their arithmetic uses the unsigned type, at least 32 bits wide, because narrower
// types would be promoted to int.
template <typename T, Op kOp>
inline T Apply(T a, T b, T c) {
  using U = std::conditional_t<sizeof(T) < 4, uint32_t,
                               std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;
  constexpr bool kInteger = std::is_integral_v<T>;
  if constexpr (kOp == Op::kAdd) {
    if constexpr (kInteger)
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    else
      return a + b;
  } else if constexpr (kOp == Op::kSub) {
    if constexpr (kInteger)
      return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
    else
      return a - b;
  } else if constexpr (kOp == Op::kMul) {
    if constexpr (kInteger)
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    else
      return a * b;
  } else if constexpr (kOp == Op::kMin) {
    return a < b ? a : b;
  } else if constexpr (kOp == Op::kMax) {
    return a > b ? a : b;
  } else if constexpr (kOp == Op::kLess) {
    return static_cast<T>(a < b);
  } else if constexpr (kOp == Op::kLessEqual) {
    return static_cast<T>(a <= b);
  } else if constexpr (kOp == Op::kGreater) {
    return static_cast<T>(a > b);
  } else if constexpr (kOp == Op::kGreaterEqual) {
    return static_cast<T>(a >= b);
  } else if constexpr (kOp == Op::kEqual) {
    return static_cast<T>(a == b);
  } else if constexpr (kOp == Op::kNotEqual) {
    return static_cast<T>(a != b);
  } else if constexpr (kOp == Op::kNeg) {
    if constexpr (kInteger)
      return static_cast<T>(U{0} - static_cast<U>(a));
    else
      return -a;
  } else if constexpr (kOp == Op::kAbs) {
    if constexpr (kInteger)
      return a < T{0} ? static_cast<T>(U{0} - static_cast<U>(a)) : a;
    else
      return std::fabs(a);
  } else if constexpr (kOp == Op::kSelect) {
    return a != T{0} ? b : c;
  } else if constexpr (kOp == Op::kDiv) {
    return a / b;
  } else if constexpr (kOp == Op::kSqrt) {
    return std::sqrt(a);
  } else if constexpr (kOp == Op::kSign) {
    const T sign = static_cast<T>(a > T{0}) - static_cast<T>(a < T{0});
    return a == a ? sign : a;  // a NaN stays
  } else {
    return a;
  }
}

}  // namespace tkv::kernels
