// Exports the status of a job to Prometheus.

#pragma once

#include <string>

#include "look.h"

namespace tkv::cli {

// Returns the status in Prometheus' text format, version 0.0.4.
std::string MetricsText(const JobStatus& status);

// Serves GET /metrics until a signal arrives.  Each response asks the job anew.
//   throws  as Observe; kAlreadyExists or kUnavailable if it cannot listen
int ServeMetrics(const StatusOptions& options, Form form);

}  // namespace tkv::cli
