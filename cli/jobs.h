// The subcommand jobs: the jobs of this user on this machine.

#pragma once

#include "json.h"

namespace tkv::cli {

// Prints a line for each job whose head listens on a Unix socket: its name, and the PID, age and
// command of the process that runs the head, such as `tkv launch` or rank 0.
int RunJobs(Form form);

}  // namespace tkv::cli
