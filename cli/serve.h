// The subcommands server and head.

#pragma once

#include "tkv/job.h"

namespace tkv::cli {

// A server without a head's address takes part in the group of its MPI launcher.
// Serves until the job is over or a signal asks it to end.  The exit status.
int Serve(const Job& job, bool quiet);

}  // namespace tkv::cli
