// The speed of a running job, from two looks at its counters.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tkv/status.h"

namespace tkv::cli {

struct Rate {
  std::string name;
  double per_second = 0;  // rounds of a key, chunks of a worker
  double bytes_per_second = 0;
  size_t index = 0;  // of the key or the worker in the newer status
};

struct Rates {
  std::vector<Rate> keys;  // the one with the most bytes first
  std::vector<Rate> workers;
};

// Returns the growth of the counters between two looks.
//   seconds  the time between them
Rates RatesBetween(const JobStatus& before, const JobStatus& now, double seconds);

// Returns the error of a silent server, or "".  Without its counters the rates would be wrong.
std::string WhoIsSilent(const JobStatus& status);
// Returns true if every worker has left the job or is lost.
bool HasEnded(const JobStatus& status);

}  // namespace tkv::cli
