#include "update/builtin.h"

#include <map>

#include "base/format.h"
#include "tkv/optimizer.h"

namespace tkv {
namespace {

// The texts of update/programs/*.program.
constexpr std::string_view kTexts[] = {
#include "update/programs.inc"
};

// Returns all built-in programs by name, parsed once.
const std::map<std::string, Program, std::less<>>& Programs() {
  static const auto* const programs = [] {
    auto* made = new std::map<std::string, Program, std::less<>>;
    for (const std::string_view text : kTexts) {
      const Program program = Program::Parse(text);
      made->emplace(program.name(), program);
    }
    return made;
  }();
  return *programs;
}

}  // namespace

std::vector<std::string> BuiltinOptimizers() {
  std::vector<std::string> names;
  for (const auto& [name, program] : Programs()) names.push_back(name);
  return names;
}

Program BuiltinProgram(std::string_view name) {
  const auto& programs = Programs();
  const auto found = programs.find(name);
  if (found != programs.end()) return found->second;
  throw Fail(Code::kNotFound, "optimizer '{}': no such built-in; there are {}", name,
             Join(BuiltinOptimizers(), ", "));
}

std::string_view BuiltinText(std::string_view name) {
  for (const std::string_view text : kTexts) {
    if (text.find(Format("program {}\n", name)) != std::string_view::npos) return text;
  }
  return {};
}

}  // namespace tkv
