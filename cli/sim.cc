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
#include <vector>

#include "tkv/simulation.h"

namespace tkv::cli {
namespace {

using testing::SimulationOptions;
using testing::SimulationReport;

// The command that runs a seed with these options.
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

void PrintFailure(const SimOptions& sim, const SimulationReport& report) {
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(report.seed),
              report.violation.c_str());
  SimulationOptions again = sim.simulation;
  again.seed = report.seed;
  again.trace = true;
  for (const std::string& line : testing::Simulate(again).trace)
    std::printf("  %s\n", line.c_str());
  std::printf("  again: %s\n", CommandOf(again).c_str());
}

struct Totals {
  std::mutex mutex;
  std::atomic<uint64_t> failures{0};  // read without the lock
  std::exception_ptr error;           // the first that ended a thread
  uint64_t runs = 0, events = 0, operations = 0, failed = 0, faults = 0;
  std::vector<SimulationReport> violations;
  std::map<std::string, std::map<std::string, uint64_t>> coverage;
};

void Count(const SimulationReport& report, size_t failures_max, Totals* totals) {
  std::lock_guard lock(totals->mutex);
  ++totals->runs;
  totals->events += report.events;
  totals->operations += report.operations;
  totals->failed += report.failed_operations;
  totals->faults += report.faults;
  for (const auto& cell : report.coverage) {
    totals->coverage[cell.receiver + "\t" + cell.message + "\t" + cell.state][cell.fault] +=
        cell.count;
  }
  if (report.passed) return;
  ++totals->failures;
  if (totals->violations.size() < failures_max) totals->violations.push_back(report);
}

}  // namespace

int RunSim(const SimOptions& sim) {
  const auto begin = std::chrono::steady_clock::now();
  Totals totals;
  std::atomic<uint64_t> next{0};
  const auto run = [&] {
    for (uint64_t i = next++; i < sim.count; i = next++) {
      SimulationOptions options = sim.simulation;
      options.seed += i;
      const SimulationReport report = testing::Simulate(options);
      Count(report, sim.failures_max, &totals);
      if (sim.hashes) {
        std::printf("%llu %016llx\n", static_cast<unsigned long long>(options.seed),
                    static_cast<unsigned long long>(report.hash));
      }
      if (totals.failures >= sim.failures_max) return;
    }
  };
  // An error ends all threads, and not the process while some still run.
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
  if (sim.hashes) return totals.failures == 0 ? 0 : 1;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const SimulationReport& report : totals.violations) PrintFailure(sim, report);
  if (sim.coverage) {
    std::printf("receiver\tmessage\tstate");
    for (const char* fault : testing::FaultNames()) std::printf("\t%s", fault);
    std::printf("\n");
    for (const auto& [row, cells] : totals.coverage) {
      std::printf("%s", row.c_str());
      for (const char* fault : testing::FaultNames()) {
        const auto cell = cells.find(fault);
        std::printf("\t%llu",
                    static_cast<unsigned long long>(cell == cells.end() ? 0 : cell->second));
      }
      std::printf("\n");
    }
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
  return totals.failures == 0 ? 0 : 1;
}

}  // namespace tkv::cli
