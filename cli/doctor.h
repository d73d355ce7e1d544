// The subcommand doctor: what stands in the way of a job, and how to repair it.

#pragma once

#include <optional>
#include <string>

#include "json.h"
#include "tkv/doctor.h"

namespace tkv::cli {

struct DoctorOptions {
  std::string hosts;    // a file of hosts; empty: this machine alone
  std::string address;  // of this machine, as the others reach it; empty: that of the route there
  int patience_seconds = 30;  // with a host that says nothing
};

// A finding in one line, and back.
std::string Encode(const Finding& finding);
std::optional<Finding> DecodeFinding(const std::string& line);

// Prints what it finds.  0 where nothing is bad, else 1.
int RunDoctor(const DoctorOptions& options, Form form);

}  // namespace tkv::cli
