// The text form, one statement a line; blank lines and lines that begin with # do not count:
//
//   program NAME
//   param NAME NUMBER                    a hyperparameter and its default
//   state NAME                           an array like the value, zero before the first round
//   scalar NAME NUMBER                   a state that is one scalar, and its initial value
//   NAME = OP OPERAND [OPERAND [OPERAND]]
//   TARGET <- NAME                       TARGET is `value` or a state; NAME is a scalar if the
//                                        state is one.  Each state is stored at most once,
//                                        `value` exactly once.
//
// NAME      [A-Za-z_][A-Za-z0-9_]*, at most 64 bytes, assigned once, used after it is defined
// OPERAND   a NAME, a NUMBER, or one of: sum and value (arrays), t (the round, from 1),
//           n (the contributors)
// NUMBER    as C prints one; inf and -inf
// OP        add sub mul div min max lt le gt ge eq ne neg abs sqrt sign select;
//           pow floor exp log cos of scalars only; reduce_sum of an array only, which makes the sum
//           of its elements, a scalar; normal of two scalars, a seed and a count, which makes an
//           array of normal numbers (random.h)
//
// The statements come in this order: program, params, states, the rest.  An operation on scalars
// alone makes a scalar, computed once, in f64.  An operation with an array operand makes an array.
//
// An update computes reductions in passes over the values, before a last pass that does all stores.
// A reduction comes one pass after the last reduction on which it depends, or in the first pass.
//
// Limits: 256 instructions, 64 params, 16 states of both kinds, 64 KiB.

#include "tkv/program.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "base/format.h"
#include "base/nearest.h"
#include "kernels/operation.h"
#include "update/fused.h"
#include "update/op_names.h"
#include "update/program_body.h"
#include "update/scalar_math.h"

namespace tkv {
namespace {

using kernels::Op;

constexpr size_t kNameBytesMax = 64;
constexpr std::string_view kReduceSum = "reduce_sum";
constexpr std::string_view kNormal = "normal";
constexpr std::string_view kStatements =
    "there are program NAME, param NAME NUMBER, state NAME, scalar NAME NUMBER, NAME = OP "
    "OPERAND... "
    "and TARGET <- NAME";

bool IsName(std::string_view word) {
  if (word.empty() || word.size() > kNameBytesMax) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!letter && !(i > 0 && c >= '0' && c <= '9')) return false;
  }
  return true;
}

bool ParseNumber(std::string_view word, double* number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *number);
  return error == std::errc() && end == word.data() + word.size() && !std::isnan(*number);
}

// A parser that reads a program line by line.  Every error names the line.
class Parser {
 public:
  ProgramBody Parse(std::string_view text) {
    if (text.size() > Program::kTextBytesMax) {
      throw Fail(Code::kInvalidArgument, "program: {} bytes, at most {} are possible", text.size(),
                 Program::kTextBytesMax);
    }
    while (!text.empty()) {
      ++line_;
      const size_t end = std::min(text.find('\n'), text.size());
      Statement(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (body_.name.empty()) Refuse("there is no 'program NAME'");
    if (!stored_[1]) Refuse("nothing is stored in 'value'");
    body_.text = std::move(canonical_);
    return std::move(body_);
  }

 private:
  enum class Stage { kProgram, kParams, kStates, kCode };

  template <typename... Args>
  [[noreturn]] void Refuse(FormatString<Args...> text, Args&&... args) const {
    throw Fail(Code::kInvalidArgument, "program, line {}: {}", line_,
               Format(text, std::forward<Args>(args)...));
  }

  void Statement(std::string_view line) {
    std::vector<std::string_view> words;
    for (size_t at = 0; at < line.size();) {
      const size_t begin = line.find_first_not_of(" \t\r", at);
      if (begin == std::string_view::npos) break;
      at = std::min(line.find_first_of(" \t\r", begin), line.size());
      words.push_back(line.substr(begin, at - begin));
      if (words[0].front() == '#') return;
      if (words.size() > 6) Refuse("more words than any statement has");
    }
    if (words.empty()) return;
    if (words[0] == "program" && words.size() == 2) {
      Head(words[1]);
    } else if (words[0] == "param" && words.size() == 3) {
      Param(words[1], words[2]);
    } else if (words[0] == "state" && words.size() == 2) {
      State(words[1]);
    } else if (words[0] == "scalar" && words.size() == 3) {
      ScalarState(words[1], words[2]);
    } else if (words.size() == 3 && words[1] == "<-") {
      Store(words[0], words[2]);
    } else if (words.size() >= 4 && words[1] == "=") {
      Assign(words);
    } else {
      Refuse("'{}' is no statement; {}", Join(words, " "), kStatements);
    }
    canonical_ += Format("{}\n", Join(words, " "));
  }

  void Enter(Stage stage) {
    if (stage < stage_) Refuse("program, params, states and code come in this order");
    if (stage_ == Stage::kProgram && stage != Stage::kProgram && body_.name.empty()) {
      Refuse("'program NAME' comes first");
    }
    if (stage == Stage::kCode && stage_ != Stage::kCode) {
      stored_.assign(body_.input_count(), false);
      phases_.assign(body_.input_count(), 0);
    }
    stage_ = stage;
  }

  void CheckName(std::string_view name) const {
    if (IsName(name)) return;
    Refuse("'{}' is no name; one has letters, digits and _, no digit first, and at most {} bytes",
           name, kNameBytesMax);
  }

  void Define(std::string_view name, Operand operand) {
    CheckName(name);
    if (!names_.emplace(std::string(name), operand).second) Refuse("'{}' is defined twice", name);
  }

  void Head(std::string_view name) {
    Enter(Stage::kProgram);
    if (!body_.name.empty()) Refuse("'program' stands twice");
    CheckName(name);
    body_.name = name;
    Define("sum", {false, 0});
    Define("value", {false, 1});
    Define("t", AddScalar({.kind = ScalarNode::Kind::kRound, .name = "t"}));
    Define("n", AddScalar({.kind = ScalarNode::Kind::kContributors, .name = "n"}));
  }

  void Param(std::string_view name, std::string_view number) {
    Enter(Stage::kParams);
    if (body_.params.size() == kParamsMax) Refuse("more than {} params", kParamsMax);
    double value = 0;
    if (!ParseNumber(number, &value)) Refuse("'{}' is no number", number);
    const auto index = static_cast<uint16_t>(body_.params.size());
    Define(
        name,
        AddScalar({.kind = ScalarNode::Kind::kParam, .param = index, .name = std::string(name)}));
    body_.params.push_back({std::string(name), value});
  }

  void EnterStates() {
    Enter(Stage::kStates);
    if (body_.states.size() + body_.scalar_states.size() == Program::kStatesMax) {
      Refuse("more than {} states", Program::kStatesMax);
    }
  }

  void State(std::string_view name) {
    EnterStates();
    Define(name, {false, body_.input_count()});
    body_.states.emplace_back(name);
  }

  void ScalarState(std::string_view name, std::string_view number) {
    EnterStates();
    double value = 0;
    if (!ParseNumber(number, &value)) Refuse("'{}' is no number", number);
    const auto index = static_cast<uint16_t>(body_.scalar_states.size());
    Define(
        name,
        AddScalar({.kind = ScalarNode::Kind::kState, .param = index, .name = std::string(name)}));
    body_.scalar_states.push_back({std::string(name), value});
    body_.scalar_stores.push_back(kNoScalar);
  }

  void Store(std::string_view target, std::string_view source) {
    Enter(Stage::kCode);
    const auto to = names_.find(std::string(target));
    if (to != names_.end() && to->second.is_scalar &&
        body_.scalars[to->second.index].kind == ScalarNode::Kind::kState) {
      return StoreScalar(target, body_.scalars[to->second.index].param, source);
    }
    if (to == names_.end() || to->second.is_scalar || to->second.index == 0 ||
        to->second.index >= body_.input_count()) {
      Refuse("'{}' is neither 'value' nor a state", target);
    }
    if (stored_[to->second.index]) Refuse("'{}' is stored twice", target);
    const auto from = names_.find(std::string(source));
    if (from == names_.end()) RefuseName(source);
    if (from->second.is_scalar) Refuse("'{}' is a scalar, an array is needed", source);
    stored_[to->second.index] = true;
    body_.stores.push_back({to->second.index, from->second.index});
  }

  void StoreScalar(std::string_view target, uint16_t state, std::string_view source) {
    if (body_.scalar_stores[state] != kNoScalar) Refuse("'{}' is stored twice", target);
    const auto from = names_.find(std::string(source));
    if (from == names_.end()) RefuseName(source);
    if (!from->second.is_scalar) Refuse("'{}' is an array, a scalar is needed", source);
    body_.scalar_stores[state] = from->second.index;
  }

  void Assign(const std::vector<std::string_view>& words) {
    Enter(Stage::kCode);
    if (words[2] == kReduceSum) return Reduce(words);
    if (words[2] == kNormal) return Draw(words);
    const auto found = std::ranges::find(kNamedOps, words[2], &NamedOp::name);
    if (found == std::end(kNamedOps)) RefuseOperation(words[2]);
    const Op op = found->op;
    const size_t arity = static_cast<size_t>(kernels::Arity(op));
    if (words.size() != 3 + arity) {
      Refuse("'{}' takes {} operands, here are {}", words[2], arity, words.size() - 3);
    }
    CountAssignment();
    Operand operands[3];
    bool is_scalar = true;
    uint16_t phase = 0;
    for (size_t i = 0; i < arity; ++i) {
      operands[i] = Resolve(words[3 + i]);
      is_scalar = is_scalar && operands[i].is_scalar;
      phase = std::max(phase, PhaseOf(operands[i]));
    }
    if (is_scalar) {
      ScalarNode node{
          .kind = ScalarNode::Kind::kOp, .op = op, .name = std::string(words[0]), .phase = phase};
      for (size_t i = 0; i < arity; ++i) node.operands[i] = operands[i].index;
      Define(words[0], AddScalar(std::move(node)));
      return;
    }
    if (kernels::IsOfScalarsOnly(op)) Refuse("'{}' is of scalars only", words[2]);
    body_.instructions.push_back({op, {operands[0], operands[1], operands[2]}, false, 0});
    DefineArray(words[0], phase);
  }

  [[noreturn]] void RefuseOperation(std::string_view word) const {
    std::vector<std::string_view> names = {kReduceSum, kNormal};
    names.reserve(names.size() + std::size(kNamedOps));
    for (const NamedOp& op : kNamedOps) names.push_back(op.name);
    if (names_.find(std::string(word)) != names_.end()) {
      Refuse("'{}' is a value; the operation comes before its operands: add {} ...", word, word);
    }
    const std::string_view nearest = Nearest(word, names);
    if (!nearest.empty()) Refuse("'{}' is no operation; did you mean '{}'?", word, nearest);
    Refuse("'{}' is no operation; there are {}", word, Join(names, " "));
  }

  [[noreturn]] void RefuseName(std::string_view word) const {
    std::vector<std::string_view> names;
    names.reserve(names_.size());
    for (const auto& [name, operand] : names_) names.push_back(name);
    // No suggestion for one letter: it is one edit away from every other letter.
    const std::string_view nearest = word.size() > 1 ? Nearest(word, names) : "";
    if (!nearest.empty()) Refuse("'{}' is not defined; did you mean '{}'?", word, nearest);
    Refuse("'{}' is not defined", word);
  }

  void Reduce(const std::vector<std::string_view>& words) {
    if (words.size() != 4) {
      Refuse("'{}' takes 1 operands, here are {}", kReduceSum, words.size() - 3);
    }
    CountAssignment();
    const Operand array = Resolve(words[3]);
    if (array.is_scalar) Refuse("'{}' is a scalar, an array is needed", words[3]);
    const uint16_t pass = PhaseOf(array);
    const Operand sum = AddScalar({.kind = ScalarNode::Kind::kReduction,
                                   .name = std::string(words[0]),
                                   .phase = static_cast<uint16_t>(pass + 1)});
    body_.reductions.push_back({array.index, sum.index, pass});
    Define(words[0], sum);
  }

  void Draw(const std::vector<std::string_view>& words) {
    if (words.size() != 5) {
      Refuse("'{}' takes 2 operands, here are {}", kNormal, words.size() - 3);
    }
    CountAssignment();
    Instruction draw;
    draw.is_draw = true;
    uint16_t phase = 0;
    for (size_t i = 0; i < 2; ++i) {
      draw.operands[i] = Resolve(words[3 + i]);
      if (!draw.operands[i].is_scalar) Refuse("'{}' is an array, a scalar is needed", words[3 + i]);
      phase = std::max(phase, PhaseOf(draw.operands[i]));
    }
    draw.draw = body_.draw_count++;
    body_.instructions.push_back(draw);
    DefineArray(words[0], phase);
  }

  void CountAssignment() {
    if (++assignments_ > Program::kInstructionsMax) {
      Refuse("more than {} instructions", Program::kInstructionsMax);
    }
  }

  void DefineArray(std::string_view name, uint16_t phase) {
    Define(name, {false, static_cast<uint16_t>(phases_.size())});
    phases_.push_back(phase);
  }

  uint16_t PhaseOf(const Operand& operand) const {
    return operand.is_scalar ? body_.scalars[operand.index].phase : phases_[operand.index];
  }

  Operand Resolve(std::string_view word) {
    const auto found = names_.find(std::string(word));
    if (found != names_.end()) return found->second;
    double number = 0;
    if (!ParseNumber(word, &number)) RefuseName(word);
    return AddScalar({.kind = ScalarNode::Kind::kConstant, .constant = number});
  }

  Operand AddScalar(ScalarNode node) {
    body_.scalars.push_back(std::move(node));
    return {true, static_cast<uint16_t>(body_.scalars.size() - 1)};
  }

  ProgramBody body_;
  std::string canonical_;
  std::map<std::string, Operand> names_;
  std::vector<bool> stored_ = {false, false};
  Stage stage_ = Stage::kProgram;
  std::vector<uint16_t> phases_;  // for each array, the passes before it can be computed
  int assignments_ = 0;
  int line_ = 0;
};

double ApplyScalar(Op op, double a, double b, double c) {
  using kernels::Apply;
  switch (op) {
    case Op::kAdd:
      return Apply<double, Op::kAdd>(a, b, c);
    case Op::kSub:
      return Apply<double, Op::kSub>(a, b, c);
    case Op::kMul:
      return Apply<double, Op::kMul>(a, b, c);
    case Op::kMin:
      return Apply<double, Op::kMin>(a, b, c);
    case Op::kMax:
      return Apply<double, Op::kMax>(a, b, c);
    case Op::kLess:
      return Apply<double, Op::kLess>(a, b, c);
    case Op::kLessEqual:
      return Apply<double, Op::kLessEqual>(a, b, c);
    case Op::kGreater:
      return Apply<double, Op::kGreater>(a, b, c);
    case Op::kGreaterEqual:
      return Apply<double, Op::kGreaterEqual>(a, b, c);
    case Op::kEqual:
      return Apply<double, Op::kEqual>(a, b, c);
    case Op::kNotEqual:
      return Apply<double, Op::kNotEqual>(a, b, c);
    case Op::kNeg:
      return Apply<double, Op::kNeg>(a, b, c);
    case Op::kAbs:
      return Apply<double, Op::kAbs>(a, b, c);
    case Op::kSelect:
      return Apply<double, Op::kSelect>(a, b, c);
    case Op::kDiv:
      return Apply<double, Op::kDiv>(a, b, c);
    case Op::kSqrt:
      return Apply<double, Op::kSqrt>(a, b, c);
    case Op::kSign:
      return Apply<double, Op::kSign>(a, b, c);
    case Op::kPow:
      return Power(a, b);
    case Op::kFloor:
      return std::floor(a);
    case Op::kExp:
      return Exp(a);
    case Op::kLog:
      return Log(a);
    case Op::kCos:
      return Cos(a);
  }
  return 0;
}

double Computed(const ScalarNode& node, const double* scalars) {
  return ApplyScalar(node.op, scalars[node.operands[0]], scalars[node.operands[1]],
                     scalars[node.operands[2]]);
}

}  // namespace

ProgramBody ParseProgram(std::string_view text) { return Parser().Parse(text); }

Program Program::Parse(std::string_view text) {
  auto body = std::make_shared<ProgramBody>(ParseProgram(text));
  FusedKernel fused = FusedFor(*body);
  body->fused = fused.kind;
  body->fused_scalars = std::move(fused.scalars);
  return Program(std::move(body));
}

const std::string& Program::ToText() const noexcept { return body_->text; }
const std::string& Program::name() const noexcept { return body_->name; }
const std::vector<Program::Param>& Program::params() const noexcept { return body_->params; }
const std::vector<std::string>& Program::states() const noexcept { return body_->states; }
const std::vector<Program::ScalarState>& Program::scalar_states() const noexcept {
  return body_->scalar_states;
}

void EvaluateScalars(const ProgramBody& body, const double* params, const double* states, double t,
                     double n, double* out) {
  for (size_t i = 0; i < body.scalars.size(); ++i) {
    const ScalarNode& node = body.scalars[i];
    switch (node.kind) {
      case ScalarNode::Kind::kParam:
        out[i] = params[node.param];
        break;
      case ScalarNode::Kind::kConstant:
        out[i] = node.constant;
        break;
      case ScalarNode::Kind::kState:
        out[i] = states == nullptr ? body.scalar_states[node.param].initial : states[node.param];
        break;
      case ScalarNode::Kind::kRound:
        out[i] = t;
        break;
      case ScalarNode::Kind::kContributors:
        out[i] = n;
        break;
      case ScalarNode::Kind::kOp:
        out[i] = Computed(node, out);
        break;
      case ScalarNode::Kind::kReduction:
        out[i] = std::numeric_limits<double>::quiet_NaN();
        break;
    }
  }
}

void EvaluateReduced(const ProgramBody& body, double* out) {
  for (size_t i = 0; i < body.scalars.size(); ++i) {
    const ScalarNode& node = body.scalars[i];
    if (node.kind == ScalarNode::Kind::kOp && node.phase > 0) out[i] = Computed(node, out);
  }
}

}  // namespace tkv
