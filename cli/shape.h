// The parts of a CLI::App that completion and manual pages need.

#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tkv::cli {

// Type names of option values, which tell completion its candidates.  A closed list is "{a,b}".
inline constexpr const char* kFile = "FILE";
inline constexpr const char* kFolder = "FOLDER";
inline constexpr const char* kCommand = "COMMAND";
std::string OneOf(const std::vector<std::string>& words);

struct OptionShape {
  std::vector<std::string> names;  // "-n", "--workers"; for a positional argument its name alone
  bool is_positional = false;
  bool takes_value = false;
  bool is_repeated = false;
  std::string type;                // of its value: "FILE", "N"
  std::vector<std::string> words;  // the allowed values; empty: any
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
// Returns the shapes of the subcommands that the help lists, in the same order.
std::vector<CommandShape> ShapesOfSubcommands(const CLI::App& app);

}  // namespace tkv::cli
