// The subcommand completion: scripts that make a shell complete subcommands, options and values.

#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "json.h"

namespace tkv::cli {

// The shells that there is a script for.
std::vector<std::string> Shells();

// Prints the script for a shell, made from the command line.  The exit status.
//   throws  kInvalidArgument  another shell
int RunCompletion(const CLI::App& app, const std::string& shell, Form form);

}  // namespace tkv::cli
