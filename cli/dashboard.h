// The subcommand dashboard: serves a page that shows a running job.

#pragma once

#include "look.h"

namespace tkv::cli {

struct DashboardOptions : LookOptions {
  int port = 0;  // 0: any that is free
};

// Serves the page on the loopback until the job has ended or a signal comes.
//   throws  as Observe; kAlreadyExists or kUnavailable if it cannot listen
int RunDashboard(const DashboardOptions& options, Form form);

}  // namespace tkv::cli
