// The subcommands of tkv.

#pragma once

#include "command_line.h"

namespace tkv::cli {

// Adds all subcommands, in the order in which the help lists them.
void AddCommands(CommandLine* line);

}  // namespace tkv::cli
