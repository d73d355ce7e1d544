// tkv explore: every order of events of small jobs.

#include "explore.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "exit_status.h"
#include "tkv/exploration.h"

namespace tkv::cli {
namespace {

using testing::ExplorationReport;

int ListNames(const std::vector<std::string>& names, Form form) {
  for (const std::string& name : names) {
    if (form == Form::kJson) {
      Print(JsonObject("name").Add("name", name));
    } else {
      std::printf("%s\n", name.c_str());
    }
  }
  return kDone;
}

void PrintHead(Form form) {
  if (form == Form::kJson) return;
  std::printf("%-24s %12s %12s %8s %6s %8s\n", "scope", "states", "transitions", "ends", "depth",
              "seconds");
}

void PrintReport(const ExplorationReport& report, double seconds, Form form) {
  if (form == Form::kJson) {
    Print(JsonObject("scope")
              .Add("name", report.scope)
              .Add("passed", report.passed)
              .Add("states", report.states)
              .Add("transitions", report.transitions)
              .Add("ends", report.ends)
              .Add("depth", report.depth)
              .Add("seconds", seconds)
              .Add("violation", report.violation)
              .Add("trace", report.trace));
    return;
  }
  std::printf("%-24s %12llu %12llu %8llu %6llu %8.1f\n", report.scope.c_str(),
              static_cast<unsigned long long>(report.states),
              static_cast<unsigned long long>(report.transitions),
              static_cast<unsigned long long>(report.ends),
              static_cast<unsigned long long>(report.depth), seconds);
  if (!report.passed) {
    std::printf("%s: %s\n", report.scope.c_str(), report.violation.c_str());
    for (const std::string& line : report.trace) std::printf("  %s\n", line.c_str());
  }
  std::fflush(stdout);
}

void PrintSummary(size_t scopes, int failures, Form form) {
  if (form == Form::kJson) {
    Print(JsonObject("summary").Add("scopes", scopes).Add("failed", failures));
  } else {
    std::printf("%zu scopes, %d failed\n", scopes, failures);
  }
}

ExplorationReport ReportOf(const std::string& name, const ExploreOptions& options) {
  return options.states_max == 0 ? testing::Explore(name)
                                 : testing::Explore(name, options.states_max);
}

}  // namespace

int RunExplore(const ExploreOptions& options, Form form) {
  const std::vector<std::string> names =
      options.scopes.empty() ? testing::ExplorationNames(options.large) : options.scopes;
  if (options.list) return ListNames(names, form);
  PrintHead(form);
  std::mutex mutex;
  std::atomic<size_t> next{0};
  std::atomic<int> failures{0};
  std::exception_ptr error;
  const auto work = [&] {
    for (size_t i = next++; i < names.size(); i = next++) {
      const auto begin = std::chrono::steady_clock::now();
      ExplorationReport report;
      try {
        report = ReportOf(names[i], options);
      } catch (...) {
        std::lock_guard lock(mutex);
        error = std::current_exception();
        return;
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      std::lock_guard lock(mutex);
      failures += report.passed ? 0 : 1;
      PrintReport(report, took.count(), form);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < std::max(1, options.jobs); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  PrintSummary(names.size(), failures, form);
  return failures == 0 ? kDone : kBadAnswer;
}

}  // namespace tkv::cli
