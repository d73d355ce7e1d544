// The representation of a verified program.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/kernels.h"
#include "tkv/program.h"

namespace tkv {

// Arrays and scalars are numbered in the order of definition.
// Arrays: 0 is `sum`, 1 is `value`, then the states, then the results of instructions.
using kernels::Instruction;
using kernels::Operand;

struct ScalarNode {
  enum class Kind : uint8_t { kParam, kConstant, kRound, kContributors, kState, kOp, kReduction };
  Kind kind = Kind::kConstant;
  double constant = 0;
  uint16_t param = 0;  // number of a param or a scalar state
  kernels::Op op = kernels::Op::kAdd;
  uint16_t operands[3] = {};
  std::string name;  // empty for constants
  // Number of passes over the values before this scalar is known.
  uint16_t phase = 0;
};

// The sum of all elements of an array, as a scalar.
struct Reduction {
  uint16_t array = 0;   // array number
  uint16_t scalar = 0;  // scalar number
  uint16_t pass = 0;    // number of its pass, from 0; the stores happen after the last pass
};

struct StoreTo {
  uint16_t target = 0;  // array number: 1 is `value`, 2 and up are states
  uint16_t source = 0;  // array number
  bool operator==(const StoreTo&) const = default;
};

inline constexpr size_t kParamsMax = 64;
// Each instruction may have a result and three constants; then the params, the states, `t` and `n`.
inline constexpr size_t kScalarsMax =
    4 * size_t{Program::kInstructionsMax} + kParamsMax + Program::kStatesMax + 2;
inline constexpr uint16_t kNoScalar = UINT16_MAX;

// Returns true if two lists are equal bit by bit: 0 and -0 make different scalars.
inline bool AreSameBits(std::span<const double> a, std::span<const double> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

struct ProgramBody {
  std::string name;
  std::string text;
  std::vector<Program::Param> params;
  std::vector<std::string> states;
  std::vector<Program::ScalarState> scalar_states;
  // For each scalar state, the scalar that it becomes; kNoScalar: unchanged.
  std::vector<uint16_t> scalar_stores;
  std::vector<ScalarNode> scalars;
  std::vector<Instruction> instructions;
  std::vector<Reduction> reductions;
  std::vector<StoreTo> stores;
  uint16_t draw_count = 0;
  kernels::Fused fused = kernels::Fused::kNone;
  std::vector<uint16_t> fused_scalars;  // scalar numbers in the order of the fused kernel

  // Returns the number of passes over the values before the one that stores.
  uint16_t pass_count() const {
    uint16_t count = 0;
    for (const Reduction& reduction : reductions)
      count = std::max<uint16_t>(count, reduction.pass + 1);
    return count;
  }
  uint16_t input_count() const { return static_cast<uint16_t>(2 + states.size()); }
};

// Parses a program without choosing a fused kernel.
//   throws  as Program::Parse
ProgramBody ParseProgram(std::string_view text);

// Returns true if an update needs all elements of a value at once.  Values that are divided among
// several servers cannot use it.
inline bool NeedsWholeValue(const Program& program) { return !program.body().reductions.empty(); }

// Computes the scalars of a program, in f64, for round `t` with `n` contributors.  `out` has room
// for body.scalars.size() numbers.  Reductions and scalars that depend on them are NaN.
//   states  the scalar states; null: their values before the first update
//   source  scalar_math.h, so that every C library gives the same bits
void EvaluateScalars(const ProgramBody& body, const double* params, const double* states, double t,
                     double n, double* out);

// Recomputes the scalars that depend on reductions, which the caller has written to `out`.
void EvaluateReduced(const ProgramBody& body, double* out);

}  // namespace tkv
