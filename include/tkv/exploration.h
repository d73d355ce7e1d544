// Every order in which the events of a small job can happen, on the machines that real jobs run on.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tkv/api.h"

namespace tkv::testing {

// What the exploration of one job found.
struct ExplorationReport {
  std::string scope;
  bool passed = false;
  std::string violation;
  uint64_t states = 0;  // that differ
  uint64_t transitions = 0;
  uint64_t ends = 0;               // states in which everybody has come to an end
  uint64_t depth = 0;              // of the longest shortest way to a state
  std::vector<std::string> trace;  // a shortest way to the violation
};

// Names of the jobs that can be explored; the large ones take hours.
TKV_API std::vector<std::string> ExplorationNames(bool large);

// Explores one of them, breadth first.
//   throws  kInvalidArgument  there is none of that name
//   throws  kResourceExhausted  it has more states
TKV_API ExplorationReport Explore(const std::string& name, uint64_t states_max = uint64_t{1} << 31);

}  // namespace tkv::testing
