// What completion and manual pages need to know of a command line, as its CLI::App says it.

#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tkv::cli {

// Type names of options by which completion knows what to offer; a closed list is "{a,b}".
inline constexpr const char* kFile = "FILE";
inline constexpr const char* kFolder = "FOLDER";
inline constexpr const char* kCommand = "COMMAND";
std::string OneOf(const std::vector<std::string>& words);

struct OptionShape {
  std::vector<std::string> names;  // "-n", "--workers"; of a positional one its name alone
  bool is_positional = false;
  bool takes_value = false;
  bool is_repeated = false;
  std::string type;                // of its value: "FILE", "N"
  std::vector<std::string> words;  // a closed list that a value is out of; empty: there is none
  std::string default_text;        // empty: none
  std::string group;
  std::string help;
};

struct CommandShape {
  std::string name, help;
  std::vector<OptionShape> options;
};

OptionShape ShapeOf(const CLI::Option& option);
CommandShape ShapeOf(const CLI::App& app);
// Of the subcommands that help lists, in its order.
std::vector<CommandShape> ShapesOfSubcommands(const CLI::App& app);

}  // namespace tkv::cli
