// Generates manual pages from the command line.

#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tkv::cli {

// Writes tkv.1 and a page for each subcommand (tkv-launch.1 and so on) into a folder.  Creates the
// folder if it is missing.  Returns the exit status.
//   throws  kUnavailable  the system's error
int RunManual(const CLI::App& app, const std::string& folder);

}  // namespace tkv::cli
