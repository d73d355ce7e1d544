// The subcommands server and head.

#pragma once

#include "tkv/job.h"

namespace tkv::cli {

// Serves until the job is over or a signal asks it to end.  The exit status.
int Serve(const Job& job, bool quiet);

}  // namespace tkv::cli
