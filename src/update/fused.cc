#include "update/fused.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "update/builtin.h"

namespace tkv {
namespace {

using kernels::Fused;

// The program that a fused kernel computes.
struct Pattern {
  Fused kind;
  ProgramBody body;
  std::vector<uint16_t> scalars;  // numbers of the body's scalars in the order of the kernel
};

uint16_t ScalarOf(const ProgramBody& body, std::string_view name) {
  const auto found = std::ranges::find(body.scalars, name, &ScalarNode::name);
  TKV_CHECK(found != body.scalars.end());
  return static_cast<uint16_t>(found - body.scalars.begin());
}

Pattern PatternOf(Fused kind, std::string_view program,
                  std::initializer_list<std::string_view> scalars) {
  Pattern pattern{kind, ParseProgram(BuiltinText(program)), {}};
  for (const std::string_view name : scalars) {
    pattern.scalars.push_back(ScalarOf(pattern.body, name));
  }
  return pattern;
}

const std::vector<Pattern>& Patterns() {
  static const auto* const patterns = new std::vector<Pattern>{
      PatternOf(Fused::kSgd, "sgd", {"rescale_grad", "clip_gradient", "wd", "learning_rate"}),
      PatternOf(Fused::kMomentum, "momentum",
                {"rescale_grad", "clip_gradient", "wd", "learning_rate", "momentum"}),
      PatternOf(Fused::kAdam, "adam",
                {"rescale_grad", "clip_gradient", "wd", "lr_t", "beta1", "rest1", "beta2", "rest2",
                 "epsilon"}),
      PatternOf(Fused::kAdamW, "adamw",
                {"rescale_grad", "clip_gradient", "keep", "lr_t", "beta1", "rest1", "beta2",
                 "rest2", "epsilon", "root2"}),
      PatternOf(Fused::kAdaGrad, "adagrad",
                {"rescale_grad", "clip_gradient", "wd", "learning_rate", "epsilon"}),
  };
  return *patterns;
}

// Finds the scalars of a program that take the place of the scalars of a pattern.
class Match {
 public:
  Match(const ProgramBody& pattern, const ProgramBody& body)
      : pattern_(pattern), body_(body), found_(pattern.scalars.size(), kNoScalar) {}

  // Returns true if the instructions are the same but for the scalars that they use, and each
  // scalar of the pattern has one counterpart.
  bool HasInstructions() {
    return std::ranges::equal(pattern_.instructions, body_.instructions,
                              [this](const Instruction& a, const Instruction& b) {
                                return a.op == b.op && !a.is_draw && !b.is_draw &&
                                       HasOperands(a, b);
                              });
  }

  // Returns true if the lower bound of the gradient is minus the upper one, as kernels assume.
  bool NegatesBound() const {
    const ScalarNode& minus = body_.scalars[found_[ScalarOf(pattern_, "minus")]];
    return minus.kind == ScalarNode::Kind::kOp && minus.op == kernels::Op::kNeg &&
           minus.operands[0] == found_[ScalarOf(pattern_, "clip_gradient")];
  }

  uint16_t CounterpartOf(uint16_t scalar) const { return found_[scalar]; }

 private:
  bool HasOperands(const Instruction& a, const Instruction& b) {
    for (size_t i = 0; i < std::size(a.operands); ++i) {
      const Operand &ours = a.operands[i], &theirs = b.operands[i];
      if (ours.is_scalar != theirs.is_scalar) return false;
      if (!ours.is_scalar && ours.index != theirs.index) return false;
      if (ours.is_scalar && !Pair(ours.index, theirs.index)) return false;
    }
    return true;
  }

  bool Pair(uint16_t of_pattern, uint16_t of_body) {
    uint16_t& found = found_[of_pattern];
    if (found == kNoScalar) found = of_body;
    return found == of_body;
  }

  const ProgramBody& pattern_;
  const ProgramBody& body_;
  std::vector<uint16_t> found_;  // by number of the pattern's scalar
};

}  // namespace

FusedKernel FusedFor(const ProgramBody& body) {
  if (!body.reductions.empty()) return {};
  for (const Pattern& pattern : Patterns()) {
    Match match(pattern.body, body);
    if (pattern.body.states.size() != body.states.size() || pattern.body.stores != body.stores ||
        !match.HasInstructions() || !match.NegatesBound()) {
      continue;
    }
    FusedKernel kernel{pattern.kind, {}};
    for (const uint16_t scalar : pattern.scalars) {
      kernel.scalars.push_back(match.CounterpartOf(scalar));
    }
    return kernel;
  }
  return {};
}

}  // namespace tkv
