// The subcommand completion: scripts that make a shell complete subcommands, options and values.

#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "json.h"

namespace tkv::cli {

// Returns the shells that have a script.
std::vector<std::string> Shells();

// Prints the script for a shell, generated from the command line.  Returns the exit status.
//   throws  kInvalidArgument  an unknown shell
int RunCompletion(const CLI::App& app, const std::string& shell, Form form);

}  // namespace tkv::cli
