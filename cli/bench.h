// The subcommand bench: the throughput of stores on this machine, beside the machine's own limits.

#pragma once

#include <string>

#include "json.h"

namespace tkv::cli {

struct BenchOptions {
  int seconds = 10;  // for the whole benchmark; one round always runs to its end
  std::string svg;   // the file of the chart; empty: none
  std::string peer;  // a host that ssh reaches; empty: TCP over loopback
};

// Runs the benchmark and prints its results.  Returns the exit status.
//   throws  as KVStore::Create and Spawn; kUnavailable  the file cannot be written, or the peer
//           cannot be reached
//           kDataLoss  a store returned other values than were pushed
int RunBench(const BenchOptions& options, Form form);

}  // namespace tkv::cli
