// The subcommands server and head.

#pragma once

#include <string>

#include "json.h"
#include "tkv/job.h"

namespace tkv::cli {

// What the environment does not say can be said here.
struct ServeOptions {
  Job::Role role = Job::Role::kServer;
  std::string head, id;
  int workers = -1, servers = -1, rank = -1;
  bool quiet = false;  // does not print the address
};

// Serves until the job is over or a signal asks it to end.  The exit status.
int RunServe(const ServeOptions& options, Form form);

}  // namespace tkv::cli
