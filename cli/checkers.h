// The subcommands sim and explore, which check the protocol.  A build without
// TKV_BUILD_SIMULATION, such as a package, has none of their code.

#pragma once

#include "command_line.h"

namespace tkv::cli {

// Adds sim and explore.  In a build without TKV_BUILD_SIMULATION both are hidden, and end with an
// error that names the build that has them.
void AddCheckers(CommandLine* line);

}  // namespace tkv::cli
