// Names operations as programs, errors and Python do.

#pragma once

#include <iterator>
#include <string_view>

#include "kernels/kernels.h"

namespace tkv {

struct NamedOp {
  std::string_view name;
  kernels::Op op;
};

// In the order of kernels::Op.
inline constexpr NamedOp kNamedOps[] = {
    {"add", kernels::Op::kAdd},         {"sub", kernels::Op::kSub},
    {"mul", kernels::Op::kMul},         {"min", kernels::Op::kMin},
    {"max", kernels::Op::kMax},         {"lt", kernels::Op::kLess},
    {"le", kernels::Op::kLessEqual},    {"gt", kernels::Op::kGreater},
    {"ge", kernels::Op::kGreaterEqual}, {"eq", kernels::Op::kEqual},
    {"ne", kernels::Op::kNotEqual},     {"neg", kernels::Op::kNeg},
    {"abs", kernels::Op::kAbs},         {"select", kernels::Op::kSelect},
    {"div", kernels::Op::kDiv},         {"sqrt", kernels::Op::kSqrt},
    {"sign", kernels::Op::kSign},       {"pow", kernels::Op::kPow},
    {"floor", kernels::Op::kFloor},     {"exp", kernels::Op::kExp},
    {"log", kernels::Op::kLog},         {"cos", kernels::Op::kCos}};

consteval bool AreInOrder() {
  for (size_t i = 0; i < std::size(kNamedOps); ++i) {
    if (kNamedOps[i].op != static_cast<kernels::Op>(i)) return false;
  }
  return std::size(kNamedOps) == kernels::kOpCount;
}
static_assert(AreInOrder());

constexpr std::string_view Name(kernels::Op op) { return kNamedOps[static_cast<size_t>(op)].name; }

}  // namespace tkv
