#include "variables.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "tkv/config.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

// The variables that the launcher sets itself.
constexpr std::array<std::string_view, 7> kOfLauncher = {
    "TKV_JOB", "TKV_HEAD", "TKV_ROLE", "TKV_RANK", "TKV_WORKERS", "TKV_SERVERS", "TKV_TOKEN_FILE"};

//   throws  kInvalidArgument  a variable that is not set here, or that the launcher itself sets
Variables::value_type VariableOf(const std::string& text) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string name = text.substr(0, equals);
  const auto refuse = [&text](const std::string& why) {
    return Error(Code::kInvalidArgument, "launch: -x '" + text + "': " + why);
  };
  if (name.empty()) throw refuse("a variable has a name");
  if (std::find(kOfLauncher.begin(), kOfLauncher.end(), name) != kOfLauncher.end()) {
    throw refuse("the launcher itself says " + name + " to each process");
  }
  if (equals < text.size()) return {name, text.substr(equals + 1)};
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) throw refuse(name + " is not set here; -x " + name + "=VALUE sets it");
  return {name, value};
}

}  // namespace

Variables VariablesOfAll(std::span<const std::string> texts) {
  Variables variables;
  for (const std::string& text : texts) {
    const auto [name, value] = VariableOf(text);
    variables[name] = value;
    if (name.starts_with("TKV_")) setenv(name.c_str(), value.c_str(), 1);
  }
  return variables;
}

Variables OwnVariables(bool is_for_another_host) {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = text.substr(0, equals);
    if (!is_for_another_host || name.starts_with("TKV_")) variables[name] = text.substr(equals + 1);
  }
  return variables;
}

std::string OfLaterLives(const std::string& failpoints) {
  std::string kept;
  std::istringstream list(failpoints);
  for (std::string point; std::getline(list, point, ',');) {
    if (point.find(" again:") != std::string::npos) kept += (kept.empty() ? "" : ",") + point;
  }
  return kept;
}

std::vector<std::string> TextsOf(const Variables& variables) {
  std::vector<std::string> texts;
  texts.reserve(variables.size());
  for (const auto& [name, value] : variables) {
    texts.push_back(name);
    texts.back() += '=';
    texts.back() += value;
  }
  return texts;
}

std::string JoiningVariables(std::span<const std::string> texts) {
  std::string told;
  for (const std::string& variable : texts) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const bool is_own =
        std::find(kOfLauncher.begin(), kOfLauncher.end(), name) != kOfLauncher.end();
    const auto is_set = [&](const OptionInfo& option) {
      return name == option.environment && name != "TKV_FAILPOINTS" &&
             variable.compare(equals + 1, std::string::npos, option.default_text) != 0;
    };
    if (is_own || std::ranges::any_of(OptionTable(), is_set)) told += " " + variable;
  }
  return told;
}

}  // namespace tkv::cli
