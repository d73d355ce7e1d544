// The subcommand bench: what stores reach on this machine, beside what it allows.

#pragma once

#include <string>

#include "json.h"

namespace tkv::cli {

struct BenchOptions {
  int seconds = 10;  // for all of it, as far as one round allows
  std::string svg;   // a file for the picture; empty: none
  std::string peer;  // a host that ssh reaches; empty: TCP at the loopback
};

// The exit status.
//   throws  as KVStore::Create and Spawn; kUnavailable  the file cannot be written, no way to the peer
//           kDataLoss  a store has given back other values than it was given
int RunBench(const BenchOptions& options, Form form);

}  // namespace tkv::cli
