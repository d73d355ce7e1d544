// Findings of the subcommand doctor about the limits of this machine.

#pragma once

#include <cstddef>
#include <vector>

#include "tkv/doctor.h"

namespace tkv::cli {

inline constexpr size_t kJobsNamed = 5;

// Looks at disks, memory, processes, and the jobs of this user.
//   jobs_named  the most jobs that the text names
std::vector<Finding> ExamineLimits(size_t jobs_named = kJobsNamed);

}  // namespace tkv::cli
