// The subcommand doctor: finds problems that would keep a job from running, and says how to repair
// them.

#pragma once

#include <optional>
#include <string>

#include "json.h"
#include "tkv/doctor.h"

namespace tkv::cli {

struct DoctorOptions {
  std::string hosts;  // a file with a list of hosts; empty: this machine alone
  // This machine's address, as the others reach it; empty: the address of the route there.
  std::string address;
  int patience_seconds = 30;  // the wait for a host that sends nothing
};

// Convert a finding to one line and back; nullopt for a line that is no finding.
std::string Encode(const Finding& finding);
std::optional<Finding> DecodeFinding(const std::string& line);

// Prints the findings.  Returns 0 if nothing is bad, else 1.
int RunDoctor(const DoctorOptions& options, Form form);

}  // namespace tkv::cli
