// Simulates a whole cluster in one thread, driven by a seed, with faults, and checks it by a model.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tkv/api.h"

namespace tkv::testing {

struct SimulationOptions {
  uint64_t seed = 1;
  int workers = 0;  // 0: the seed chooses, 2 to 5
  int servers = 0;  // 0: the seed chooses, 1 to 4
  int steps = 0;    // length of each worker's program; 0: the seed chooses
  // Names of faults, or "all"; empty: none.  Names are those of FaultNames().
  std::string faults = "all";
  bool trace = false;  // keep the text of the last events
};

// The number of times that a message of this type met a receiver in this state during a fault.
struct CoverageCell {
  std::string fault;
  std::string receiver;  // head, server or client
  std::string message;
  std::string state;
  uint64_t count = 0;
};

struct SimulationReport {
  uint64_t seed = 0;
  bool passed = false;
  std::string violation;  // the guarantee that was broken
  uint64_t hash = 0;      // of all events: equal runs have equal hashes
  uint64_t events = 0;
  uint64_t operations = 0;  // operations that ended
  uint64_t failed_operations = 0;
  uint64_t faults = 0;  // faults that took place
  double virtual_seconds = 0;
  std::vector<std::string> trace;
  std::vector<CoverageCell> coverage;
};

// Runs one seed to its end.  Deterministic: the same options give the same report.
//   throws  kInvalidArgument  an unknown fault, numbers below 0 or too large for one thread
TKV_API SimulationReport Simulate(const SimulationOptions& options);

TKV_API std::span<const char* const> FaultNames() noexcept;

}  // namespace tkv::testing
