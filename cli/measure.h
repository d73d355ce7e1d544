// Measuring in turns, each figure beside its limit, so that what disturbs the machine disturbs both.

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
  // That one run moves, and one of the limit; 0: the time of a run is the figure.
  double bytes = 0, limit_bytes = 0;
  Run run;
  std::vector<Run> limits;  // in ways of which the fastest counts
};

// Medians over the rounds.
struct Result {
  std::string name, limit_name;
  bool is_rate = false;
  double value = 0, limit = 0;  // bytes in a second, or seconds
  double reached = 0;           // of the limit; the median of what the rounds have
  double lowest = 0, highest = 0;
  double others =
      0;  // share of the cores' time that this process did not get, just before its runs
};

struct Measurement {
  std::vector<Result> results;
  size_t rounds = 0;  // at least one
};

// Ends before the deadline where a round as long as the longest would not; one round is always made.
//   interrupt  called between samples; what it throws ends it
Measurement Measure(const std::vector<Figure>& figures,
                    std::chrono::steady_clock::time_point deadline,
                    const std::function<void()>& interrupt);

}  // namespace tkv::cli
