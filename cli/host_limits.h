// Findings of the subcommand doctor about the limits of this machine.

#pragma once

#include <vector>

#include "tkv/doctor.h"

namespace tkv::cli {

// Looks at disks, memory, processes, and the jobs of this user.
std::vector<Finding> ExamineLimits();

}  // namespace tkv::cli
