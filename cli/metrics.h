// The status of a job for Prometheus.

#pragma once

#include <string>

#include "look.h"

namespace tkv::cli {

// In Prometheus' text form, version 0.0.4.
std::string MetricsText(const JobStatus& status);

// Answers GET /metrics until a signal comes; each answer asks the job anew.
//   throws  as Observe, kAlreadyExists or kUnavailable (why it cannot listen)
int ServeMetrics(const StatusOptions& options, Form form);

}  // namespace tkv::cli
