// The subcommand sim.

#pragma once

#include <cstdint>

#include "json.h"
#include "tkv/simulation.h"

namespace tkv::cli {

struct SimOptions {
  testing::SimulationOptions simulation;  // for the first seed
  uint64_t count = 1;                     // seeds
  uint64_t failures_max = 1;              // the number of failures after which it stops
  int jobs = 2;                           // threads
  bool hashes = false;                    // print the hash of each run
  bool coverage = false;                  // print fault x message x state
};

// Runs the simulations.  Returns the exit status: 0 if every guarantee held.
int RunSim(const SimOptions& options, Form form);

}  // namespace tkv::cli
