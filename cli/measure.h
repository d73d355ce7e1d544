// Measures each figure and its limit in turns, so that a disturbance of the machine affects both.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tkv::cli {

struct Figure {
  using Run = std::function<void(int64_t times)>;

  std::string name;        // "copy, one core"
  std::string limit_name;  // "memcpy by one thread"
  // Bytes moved by one run of the figure and of the limit; 0: the figure is the time of a run.
  double bytes = 0, limit_bytes = 0;
  Run run;
  std::vector<Run> limits;  // variants of the limit; the fastest counts
};

// Medians over the rounds.
struct Result {
  std::string name, limit_name;
  bool is_rate = false;
  double value = 0, limit = 0;  // bytes per second, or seconds
  double reached = 0;           // fraction of the limit; the median of the rounds
  double lowest = 0, highest = 0;
  double others =
      0;  // share of the cores' time that this process did not get, just before its runs
};

struct Measurement {
  std::vector<Result> results;
  size_t rounds = 0;  // at least one
};

// Measures rounds until the deadline.  Stops earlier if another round as long as the longest would
// pass it.  Makes at least one round.
//   interrupt  called between samples; an exception from it ends the measurement
Measurement Measure(const std::vector<Figure>& figures,
                    std::chrono::steady_clock::time_point deadline,
                    const std::function<void()>& interrupt);

}  // namespace tkv::cli
