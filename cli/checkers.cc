#include "checkers.h"

#include <cstdint>
#include <limits>
#include <memory>

#include "explore.h"
#include "sim.h"
#include "tkv/simulation.h"
#include "validators.h"

namespace tkv::cli {
namespace {

void AddSim(CommandLine* line) {
  const auto options = std::make_shared<SimOptions>();
  CLI::App* const sim =
      line->Add("sim", "Run a cluster from a seed, with faults, and check every guarantee",
                [options](Form form) { return RunSim(*options, form); });
  sim->add_option("--seed", options->simulation.seed, "First seed")
      ->check(kNatural)
      ->capture_default_str();
  sim->add_option("--count", options->count, "Seeds to run")
      ->check(kNatural)
      ->check(Between(uint64_t{1}, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  sim->add_option("--workers", options->simulation.workers, "Workers; 0: the seed chooses");
  sim->add_option("--servers", options->simulation.servers, "Servers; 0: the seed chooses");
  sim->add_option("--steps", options->simulation.steps, "Steps of each worker; 0: the seed chooses")
      ->check(Between(0, 1000000));
  sim->add_option("--faults", options->simulation.faults,
                  "all, or with commas some of " + CLI::detail::join(testing::FaultNames(), ", ") +
                      "; empty: none")
      ->capture_default_str();
  CLI::Option* const jobs =
      sim->add_option("--jobs", options->jobs, "Threads")->check(kThreads)->capture_default_str();
  sim->add_option("--failures-max", options->failures_max, "Stop after so many failures")
      ->check(kNatural)
      ->check(Between(uint64_t{1}, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  CLI::Option* const coverage =
      sim->add_flag("--coverage", options->coverage, "Print what met what");
  sim->add_flag("--hashes", options->hashes,
                "Print the hash of each run, by one thread and in order, and nothing else")
      ->excludes(jobs, coverage);
}

void AddExplore(CommandLine* line) {
  const auto options = std::make_shared<ExploreOptions>();
  CLI::App* const explore = line->Add(
      "explore", "Go through every order of events of small jobs, and check every guarantee",
      [options](Form form) { return RunExplore(*options, form); });
  CLI::Option* const scope = explore->add_option(
      "NAME", options->scopes, "Names of jobs, as --list has them; default all that are not large");
  explore->add_flag("--large", options->large, "All, the large ones too: hours")->excludes(scope);
  explore->add_flag("--list", options->list, "Print the names")->excludes(scope);
  explore->add_option("--states-max", options->states_max, "Give up on a job with more; 0: never")
      ->check(kNatural);
  explore->add_option("--jobs", options->jobs, "Threads")->check(kThreads)->capture_default_str();
}

}  // namespace

void AddCheckers(CommandLine* line) {
  AddSim(line);
  AddExplore(line);
}

}  // namespace tkv::cli
