// Explores every order in which the events of a small job can happen, on the state machines that
// real jobs run on.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tkv/api.h"

namespace tkv::testing {

// The result of exploring one job.
struct ExplorationReport {
  std::string scope;
  bool passed = false;
  std::string violation;
  uint64_t states = 0;  // distinct states
  uint64_t transitions = 0;
  uint64_t ends = 0;               // states in which every process has ended
  uint64_t depth = 0;              // the most steps that a shortest path to a state has
  std::vector<std::string> trace;  // a shortest path to the violation
};

// Names of the jobs that can be explored; the large ones take hours.
TKV_API std::vector<std::string> ExplorationNames(bool large);

// Explores the job of that name, breadth first.
//   throws  kInvalidArgument    no such job
//           kResourceExhausted  the job has more than `states_max` states
TKV_API ExplorationReport Explore(const std::string& name, uint64_t states_max = uint64_t{1} << 31);

}  // namespace tkv::testing
