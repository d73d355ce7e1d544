// The command tkv.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "explore.h"
#include "sim.h"
#include "tkv/config.h"
#include "tkv/error.h"

namespace {

CLI::App* AddSim(CLI::App* app, tkv::cli::SimOptions* options) {
  CLI::App* const sim = app->add_subcommand(
      "sim", "Run a cluster from a seed, with faults, and check every guarantee");
  sim->add_option("--seed", options->simulation.seed, "First seed")->capture_default_str();
  sim->add_option("--count", options->count, "Seeds to run")->capture_default_str();
  sim->add_option("--workers", options->simulation.workers, "Workers; 0: the seed chooses");
  sim->add_option("--servers", options->simulation.servers, "Servers; 0: the seed chooses");
  sim->add_option("--steps", options->simulation.steps,
                  "Steps of each worker; 0: the seed chooses");
  sim->add_option("--faults", options->simulation.faults,
                  "all, or a list: drop,duplicate,delay,slow,cut,kill,vanish,killserver,killhead,"
                  "pause,isolate,haste; empty: none")
      ->capture_default_str();
  sim->add_option("--jobs", options->jobs, "Threads")->capture_default_str();
  sim->add_option("--failures-max", options->failures_max, "Stop after so many failures")
      ->capture_default_str();
  sim->add_flag("--hashes", options->hashes, "Print the hash of each run");
  sim->add_flag("--coverage", options->coverage, "Print what met what");
  return sim;
}

CLI::App* AddExplore(CLI::App* app, tkv::cli::ExploreOptions* options) {
  CLI::App* const explore = app->add_subcommand(
      "explore", "Go through every order of events of small jobs, and check every guarantee");
  explore->add_option("scope", options->scopes, "Names of jobs; default all that are not large");
  explore->add_flag("--large", options->large, "All, the large ones too: hours");
  explore->add_flag("--list", options->list, "Print the names");
  explore->add_option("--states-max", options->states_max, "Give up on a job with more; 0: never");
  explore->add_option("--jobs", options->jobs, "Threads")->capture_default_str();
  return explore;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"TensorKV: a store for sharing tensors"};
  app.set_version_flag("--version", std::string("tkv ") + tkv::Version());
  app.require_subcommand(1);
  CLI::App* const config =
      app.add_subcommand("config", "Show what this build is and the options in force");
  tkv::cli::SimOptions sim_options;
  CLI::App* const sim = AddSim(&app, &sim_options);
  tkv::cli::ExploreOptions explore_options;
  CLI::App* const explore = AddExplore(&app, &explore_options);
  CLI11_PARSE(app, argc, argv);
  try {
    if (*config) std::fputs(tkv::ConfigText().c_str(), stdout);
    if (*explore) return tkv::cli::RunExplore(explore_options);
    if (*sim) return tkv::cli::RunSim(sim_options);
  } catch (const tkv::Error& error) {
    std::fprintf(stderr, "tkv: %s\n", error.what());
    return 2;
  }
  return 0;
}
