// The page of tkv dashboard, in HTML.

#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "rates.h"
#include "tkv/status.h"

namespace tkv::cli {

// The figures of one look at the job.
struct Moment {
  double rounds_per_second = 0;  // of the fastest key
  double bytes_per_second = 0;   // pushed by all workers
  double waits_seconds = 0;      // of the oldest open round
  std::vector<double> workers;   // bytes per second of each rank
};

inline constexpr size_t kMomentsMax = 300;  // five minutes

struct DashboardView {
  JobStatus status;
  Rates rates;
  std::deque<Moment> moments;  // the newest last
  std::string problem;         // "": the job is healthy
  std::string end;             // why the page shows nothing newer; "": the job runs
};

// Returns the whole page.  The numbers and the plots are in it; the script replaces the elements
// with the attribute data-live by those of a newer page.
std::string DashboardPage(const DashboardView& view);
// The files that the page names: /dashboard.css and /dashboard.js.
extern const char* const kDashboardStyle;
extern const char* const kDashboardScript;

}  // namespace tkv::cli
