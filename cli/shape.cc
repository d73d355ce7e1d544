#include "shape.h"

#include <algorithm>
#include <sstream>
#include <string_view>

namespace tkv::cli {
namespace {

// Returns the words of "{a,b}"; none if the type is no such list.
std::vector<std::string> WordsOf(const std::string& type) {
  const size_t end = type.find('}');
  if (!type.starts_with('{') || end == std::string::npos) return {};
  std::istringstream list(type.substr(1, end - 1));
  std::vector<std::string> words;
  for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  return words;
}

}  // namespace

std::string OneOf(const std::vector<std::string>& words) {
  return "{" + CLI::detail::join(words, ",") + "}";
}

OptionShape ShapeOf(const CLI::Option& option) {
  OptionShape shape;
  shape.is_positional = !option.nonpositional();
  if (shape.is_positional) {
    shape.names.push_back(option.get_name(true));
  } else {
    for (const std::string& name : option.get_snames()) shape.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) shape.names.push_back("--" + name);
  }
  // Behind a colon the type name has the descriptions of validators.
  const std::string type = option.get_type_name();
  shape.type = type.substr(0, type.find(':'));
  shape.words = WordsOf(shape.type);
  shape.takes_value = option.get_items_expected_min() > 0;
  shape.is_repeated = option.get_items_expected_max() > 1;
  shape.default_text = option.get_default_str();
  shape.group = option.get_group();
  shape.help = option.get_description();
  return shape;
}

CommandShape ShapeOf(const CLI::App& app) {
  CommandShape shape{app.get_name(), app.get_description(), {}};
  for (const CLI::Option* const option : app.get_options()) {
    shape.options.push_back(ShapeOf(*option));
  }
  return shape;
}

std::vector<CommandShape> ShapesOfSubcommands(const CLI::App& app) {
  std::vector<CommandShape> shapes;
  for (const CLI::App* const sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) shapes.push_back(ShapeOf(*sub));
  }
  return shapes;
}

}  // namespace tkv::cli
