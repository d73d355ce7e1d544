// Manual pages, made from the command line.

#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tkv::cli {

// Writes tkv.1 and a page for each subcommand, tkv-launch.1 and so on, into a folder, which it makes
// where there is none.  The exit status.
//   throws  kUnavailable  what the system says
int RunManual(const CLI::App& app, const std::string& folder);

}  // namespace tkv::cli
