// The subcommands server and head.

#pragma once

#include <string>

#include "json.h"
#include "tkv/job.h"

namespace tkv::cli {

// Options that override the environment.
struct ServeOptions {
  Job::Role role = Job::Role::kServer;
  std::string head, id;
  int workers = -1, servers = -1, rank = -1;
  bool quiet = false;  // does not print the address
};

// Serves until the job is over or a signal asks the process to end.  Returns the exit status.
int RunServe(const ServeOptions& options, Form form);

}  // namespace tkv::cli
