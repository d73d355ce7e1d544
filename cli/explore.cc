// tkv explore: every order of events of small jobs.

#include "explore.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include "tkv/exploration.h"

namespace tkv::cli {

int RunExplore(const ExploreOptions& options) {
  const std::vector<std::string> names =
      options.scopes.empty() ? testing::ExplorationNames(options.large) : options.scopes;
  if (options.list) {
    for (const std::string& name : names) std::printf("%s\n", name.c_str());
    return 0;
  }
  std::printf("%-24s %12s %12s %8s %6s %8s\n", "scope", "states", "transitions", "ends", "depth",
              "seconds");
  std::mutex mutex;
  std::atomic<size_t> next{0};
  std::atomic<int> failures{0};
  std::exception_ptr error;
  const auto work = [&] {
    for (size_t i = next++; i < names.size(); i = next++) {
      const auto begin = std::chrono::steady_clock::now();
      testing::ExplorationReport report;
      try {
        report = options.states_max == 0 ? testing::Explore(names[i])
                                         : testing::Explore(names[i], options.states_max);
      } catch (...) {
        std::lock_guard lock(mutex);
        error = std::current_exception();
        return;
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      std::lock_guard lock(mutex);
      std::printf("%-24s %12llu %12llu %8llu %6llu %8.1f\n", names[i].c_str(),
                  static_cast<unsigned long long>(report.states),
                  static_cast<unsigned long long>(report.transitions),
                  static_cast<unsigned long long>(report.ends),
                  static_cast<unsigned long long>(report.depth), took.count());
      if (!report.passed) {
        ++failures;
        std::printf("%s: %s\n", names[i].c_str(), report.violation.c_str());
        for (const std::string& line : report.trace) std::printf("  %s\n", line.c_str());
      }
      std::fflush(stdout);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < std::max(1, options.jobs); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  std::printf("%zu scopes, %d failed\n", names.size(), failures.load());
  return failures == 0 ? 0 : 1;
}

}  // namespace tkv::cli
