// tkv sim: runs seeds of the simulation and says whether every guarantee held.

#include "sim.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "exit_status.h"
#include "tkv/simulation.h"

namespace tkv::cli {
namespace {

using testing::SimulationOptions;
using testing::SimulationReport;

// Returns the command that repeats a run with these options.
std::string CommandOf(const SimulationOptions& options) {
  const SimulationOptions usual;
  std::string command = "tkv sim --seed " + std::to_string(options.seed);
  const auto add = [&command](const char* flag, int value) {
    if (value != 0) command += std::string(flag) + std::to_string(value);
  };
  add(" --workers ", options.workers);
  add(" --servers ", options.servers);
  add(" --steps ", options.steps);
  if (options.faults != usual.faults) command += " --faults '" + options.faults + "'";
  return command;
}

// Counts of each fault, by receiver, message and state.
using Coverage =
    std::map<std::tuple<std::string, std::string, std::string>, std::map<std::string, uint64_t>>;

struct Totals {
  std::mutex mutex;
  std::atomic<uint64_t> failures{0};  // read without the lock
  std::exception_ptr error;           // the first exception that ended a thread
  uint64_t runs = 0, events = 0, operations = 0, failed = 0, faults = 0;
  std::vector<SimulationReport> violations;
  Coverage coverage;
};

void Count(const SimulationReport& report, size_t failures_max, Totals* totals) {
  std::lock_guard lock(totals->mutex);
  ++totals->runs;
  totals->events += report.events;
  totals->operations += report.operations;
  totals->failed += report.failed_operations;
  totals->faults += report.faults;
  for (const auto& cell : report.coverage) {
    totals->coverage[{cell.receiver, cell.message, cell.state}][cell.fault] += cell.count;
  }
  if (report.passed) return;
  ++totals->failures;
  if (totals->violations.size() < failures_max) totals->violations.push_back(report);
}

void PrintHash(const SimulationReport& report, Form form) {
  char hash[17];
  std::snprintf(hash, sizeof(hash), "%016llx", static_cast<unsigned long long>(report.hash));
  if (form == Form::kJson) {
    Print(JsonObject("hash").Add("seed", report.seed).Add("hash", hash));
  } else {
    std::printf("%llu %s\n", static_cast<unsigned long long>(report.seed), hash);
  }
}

void PrintFailure(const SimOptions& sim, const SimulationReport& report, Form form) {
  SimulationOptions again = sim.simulation;
  again.seed = report.seed;
  again.trace = true;
  const std::vector<std::string> trace = testing::Simulate(again).trace;
  if (form == Form::kJson) {
    Print(JsonObject("violation")
              .Add("seed", report.seed)
              .Add("violation", report.violation)
              .Add("trace", trace)
              .Add("again", CommandOf(again)));
    return;
  }
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(report.seed),
              report.violation.c_str());
  for (const std::string& line : trace) std::printf("  %s\n", line.c_str());
  std::printf("  again: %s\n", CommandOf(again).c_str());
}

void PrintCoverage(const Coverage& coverage) {
  std::printf("receiver\tmessage\tstate");
  for (const char* fault : testing::FaultNames()) std::printf("\t%s", fault);
  std::printf("\n");
  for (const auto& [met, counts] : coverage) {
    const auto& [receiver, message, state] = met;
    std::printf("%s\t%s\t%s", receiver.c_str(), message.c_str(), state.c_str());
    for (const char* fault : testing::FaultNames()) {
      const auto count = counts.find(fault);
      std::printf("\t%llu",
                  static_cast<unsigned long long>(count == counts.end() ? 0 : count->second));
    }
    std::printf("\n");
  }
}

void PrintCoverageAsJson(const Coverage& coverage) {
  for (const auto& [met, counts] : coverage) {
    const auto& [receiver, message, state] = met;
    for (const auto& [fault, count] : counts) {
      Print(JsonObject("coverage")
                .Add("receiver", receiver)
                .Add("message", message)
                .Add("state", state)
                .Add("fault", fault)
                .Add("count", count));
    }
  }
}

void PrintSummary(const SimOptions& sim, const Totals& totals, double seconds, Form form) {
  if (form == Form::kJson) {
    Print(JsonObject("summary")
              .Add("seeds", totals.runs)
              .Add("first_seed", sim.simulation.seed)
              .Add("failed", totals.failures.load())
              .Add("operations", totals.operations)
              .Add("failed_operations", totals.failed)
              .Add("faults", totals.faults)
              .Add("events", totals.events)
              .Add("seconds", seconds));
    return;
  }
  std::printf(
      "%llu seeds from %llu, %llu failed; %llu operations (%llu ended in an error), %llu "
      "faults, %llu events; %.1f s, %.0f seeds/s\n",
      static_cast<unsigned long long>(totals.runs),
      static_cast<unsigned long long>(sim.simulation.seed),
      static_cast<unsigned long long>(totals.failures.load()),
      static_cast<unsigned long long>(totals.operations),
      static_cast<unsigned long long>(totals.failed),
      static_cast<unsigned long long>(totals.faults),
      static_cast<unsigned long long>(totals.events), seconds,
      static_cast<double>(totals.runs) / seconds);
}

}  // namespace

int RunSim(const SimOptions& sim, Form form) {
  const auto begin = std::chrono::steady_clock::now();
  Totals totals;
  std::atomic<uint64_t> next{0};
  const auto run = [&] {
    for (uint64_t i = next++; i < sim.count; i = next++) {
      SimulationOptions options = sim.simulation;
      options.seed += i;
      const SimulationReport report = testing::Simulate(options);
      Count(report, sim.failures_max, &totals);
      if (sim.hashes) PrintHash(report, form);
      if (totals.failures >= sim.failures_max) return;
    }
  };
  // Lets an exception end all threads.  Otherwise it would end the process while some still run.
  const auto work = [&] {
    try {
      run();
    } catch (...) {
      next = sim.count;
      std::lock_guard lock(totals.mutex);
      if (!totals.error) totals.error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < (sim.hashes ? 1 : sim.jobs); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (totals.error) std::rethrow_exception(totals.error);
  if (sim.hashes) return totals.failures == 0 ? kDone : kBadAnswer;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const SimulationReport& report : totals.violations) PrintFailure(sim, report, form);
  if (sim.coverage && form == Form::kText) PrintCoverage(totals.coverage);
  if (sim.coverage && form == Form::kJson) PrintCoverageAsJson(totals.coverage);
  PrintSummary(sim, totals, seconds, form);
  return totals.failures == 0 ? kDone : kBadAnswer;
}

}  // namespace tkv::cli
