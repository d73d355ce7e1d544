#include "formula.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <utility>

namespace tkv::cli {
namespace {

// The precedence of an expression.  An operand with a lower one than required is put in brackets.
enum Binding : uint8_t { kWeak = 0, kSum = 1, kProduct = 2, kPower = 3, kAtom = 4 };

struct Infix {
  std::string_view op;
  std::string_view sign;
  int binding;
  int left, right;  // precedences required of the operands
};

constexpr std::array<Infix, 11> kInfixes = {{
    {"add", "+", kSum, kSum, kSum},
    {"sub", "-", kSum, kSum, kProduct},
    {"mul", "×", kProduct, kProduct, kProduct},
    {"div", "/", kProduct, kProduct, kPower},
    {"pow", "^", kPower, kAtom, kAtom},
    {"lt", "<", kWeak, kSum, kSum},
    {"le", "≤", kWeak, kSum, kSum},
    {"gt", ">", kWeak, kSum, kSum},
    {"ge", "≥", kWeak, kSum, kSum},
    {"eq", "=", kWeak, kSum, kSum},
    {"ne", "≠", kWeak, kSum, kSum},
}};

// Returns the usual name of an operation that is written as a function.
std::string FunctionName(const std::string& op) {
  if (op == "sqrt") return "√";
  if (op == "reduce_sum") return "Σ";
  return op;
}

bool IsInput(const std::string& word) { return word == "sum" || word == "value"; }

std::string InBrackets(const std::string& text) {
  std::string whole = "(";
  return whole.append(text).append(")");
}

std::vector<std::string> WordsOf(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

}  // namespace

struct Formulas::Expression {
  int binding;
  std::string text;
};

Formulas::Formulas(const Program& program, std::string_view text)
    : states_(program.states().begin(), program.states().end()) {
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::vector<std::string> words = WordsOf(line);
    if (words.size() < 3 || words[0].starts_with('#')) continue;
    if (words[1] == "<-") {
      stores_.push_back({number, words[0], words[2]});
      ++uses_[words[2]];
    } else if (words[1] == "=") {
      Assignment made{number, words[0], words[2]};
      made.operands.assign(words.begin() + 3, words.end());
      Add(std::move(made));
    }
  }
  Measure();
}

void Formulas::Add(Assignment assignment) {
  const auto is_array = [this](const std::string& word) {
    const Assignment* const made = Find(word);
    return made != nullptr ? !made->is_scalar : IsInput(word) || states_.contains(word);
  };
  const auto& operands = assignment.operands;
  assignment.is_scalar =
      assignment.op == "reduce_sum" ||
      (assignment.op != "normal" && std::none_of(operands.begin(), operands.end(), is_array));
  for (const std::string& word : operands) {
    assignment.pass = std::max(assignment.pass, PassOf(word));
    ++uses_[word];
  }
  assignment.pass += assignment.op == "reduce_sum" ? 1 : 0;
  index_[assignment.name] = assignments_.size();
  assignments_.push_back(std::move(assignment));
}

const Formulas::Assignment* Formulas::Find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &assignments_[found->second];
}

int Formulas::PassOf(const std::string& word) const {
  const Assignment* const made = Find(word);
  return made == nullptr ? 0 : made->pass;
}

std::string Formulas::Of(const Assignment& assignment) const {
  return Compose(assignment, false).text;
}

std::string Formulas::Operand(const std::string& word, int binding, bool is_nested) const {
  const Assignment* const made = Find(word);
  if (!is_nested || made == nullptr || uses_.at(word) > 1) return word;
  const Expression inner = Compose(*made, true);
  return inner.binding < binding ? InBrackets(inner.text) : inner.text;
}

std::string Formulas::Condition(const std::string& word, bool is_nested) const {
  const Assignment* const made = Find(word);
  const bool is_comparison = made != nullptr && is_nested && uses_.at(word) == 1 &&
                             Compose(*made, true).binding == kWeak && made->op != "select";
  return is_comparison ? Operand(word, kWeak, true) : Operand(word, kSum, is_nested) + " ≠ 0";
}

Formulas::Expression Formulas::Compose(const Assignment& assignment, bool is_nested) const {
  const auto& [line, name, op, operands, is_scalar, pass] = assignment;
  const auto operand = [&](size_t i, int binding) {
    return Operand(operands[i], binding, is_nested);
  };
  const auto infix = std::find_if(kInfixes.begin(), kInfixes.end(),
                                  [&](const Infix& one) { return one.op == assignment.op; });
  if (infix != kInfixes.end()) {
    std::string text = operand(0, infix->left);
    text.append(" ").append(infix->sign).append(" ").append(operand(1, infix->right));
    return {infix->binding, text};
  }
  if (op == "neg") return {kProduct, std::string("-").append(operand(0, kPower))};
  if (op == "select") {
    std::string text = operand(1, kSum);
    text.append(" where ").append(Condition(operands[0], is_nested));
    return {kWeak, text.append(" else ").append(operand(2, kSum))};
  }
  std::string list;
  for (size_t i = 0; i < operands.size(); ++i) list += (i == 0 ? "" : ", ") + operand(i, kWeak);
  return {kAtom, FunctionName(op) + InBrackets(list)};
}

std::vector<std::string> Formulas::InShort() const {
  std::vector<std::string> lines;
  for (const Assignment& assignment : assignments_) {
    const auto uses = uses_.find(assignment.name);
    if (uses == uses_.end() || uses->second < 2) continue;
    lines.push_back("with " + assignment.name + " = " + Compose(assignment, true).text);
  }
  for (const Store& store : stores_) {
    lines.push_back(store.target + " becomes " + Operand(store.source, kWeak, true));
  }
  return lines;
}

void Formulas::Collect(const std::string& word, std::set<std::string>* inputs) const {
  const Assignment* const made = Find(word);
  if (made == nullptr) {
    if (IsInput(word) || states_.contains(word)) inputs->insert(word);
    return;
  }
  if (made->is_scalar || !inputs->insert(word).second) return;
  for (const std::string& operand : made->operands) Collect(operand, inputs);
}

void Formulas::Measure() {
  std::map<int, std::set<std::string>> by_pass;
  for (const Assignment& assignment : assignments_) {
    if (assignment.op != "reduce_sum") continue;
    Collect(assignment.operands[0], &by_pass[assignment.pass - 1]);
    traffic_.passes = std::max(traffic_.passes, assignment.pass + 1);
  }
  for (const Store& store : stores_) {
    Collect(store.source, &by_pass[traffic_.passes - 1]);
    traffic_.states_written += states_.contains(store.target) ? 1 : 0;
  }
  for (const auto& [pass, arrays] : by_pass) {
    for (const std::string& array : arrays) {
      traffic_.values_read += IsInput(array) ? 1 : 0;
      traffic_.states_read += states_.contains(array) ? 1 : 0;
    }
  }
}

}  // namespace tkv::cli
