// The command tkv.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "agent.h"
#include "doctor.h"
#include "explore.h"
#include "launch.h"
#include "restore.h"
#include "serve.h"
#include "sim.h"
#include "system.h"
#include "tkv/config.h"
#include "tkv/error.h"

namespace {

// The flags of the option table.  They set the variables that the processes of the job read, so that
// all of them have the option, those on other hosts too.
class OptionFlags {
 public:
  // `of`: whose variables the flags set.
  void AddTo(CLI::App* app, const std::string& of) {
    for (const tkv::OptionInfo& option : tkv::OptionTable()) {
      if (*option.flag == '\0') continue;
      const bool is_flag = option.kind == tkv::OptionInfo::Kind::kFlag;
      const std::string help = std::string(option.help) + " Sets " + option.environment + of;
      const auto keep = [this, &option](const std::string& text) {
        given_.emplace_back(&option, text);
      };
      if (is_flag) {
        // Also `--deterministic=0`, which counts beside a variable that says 1.
        const auto count = [keep](int64_t value) {
          keep(std::to_string(std::max<int64_t>(0, value)));
        };
        app->add_flag_function(option.flag, count, help)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
            ->group(kGroup);
      } else {
        app->add_option_function<std::string>(option.flag, keep, help)->group(kGroup);
      }
    }
  }

  //   throws  kInvalidArgument  a value that does not fit its option
  void Apply() const {
    tkv::StoreOptions scratch;
    for (const auto& [option, text] : given_) {
      tkv::SetOption(&scratch, option->name, text);
      setenv(option->environment, text.c_str(), 1);
    }
  }

 private:
  static constexpr const char* kGroup = "Options of stores";
  std::vector<std::pair<const tkv::OptionInfo*, std::string>> given_;
};

// Of an option that is a name or a path: "$HOSTS" of a variable that is not set is a mistake.
const CLI::Validator kNotEmpty(
    [](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); }, "");

// Of a number without a sign, which the parser wraps around.
const CLI::Validator kNatural(
    [](const std::string& text) { return std::string(text.starts_with('-') ? "is negative" : ""); },
    "");

const CLI::Range kThreads(1, 256);
const CLI::Range kProcesses(1, 4096);  // of a kind, in one job

CLI::App* AddSim(CLI::App* app, tkv::cli::SimOptions* options) {
  CLI::App* const sim = app->add_subcommand(
      "sim", "Run a cluster from a seed, with faults, and check every guarantee");
  sim->add_option("--seed", options->simulation.seed, "First seed")
      ->check(kNatural)
      ->capture_default_str();
  sim->add_option("--count", options->count, "Seeds to run")
      ->check(kNatural)
      ->check(CLI::Range(uint64_t{1}, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  sim->add_option("--workers", options->simulation.workers, "Workers; 0: the seed chooses");
  sim->add_option("--servers", options->simulation.servers, "Servers; 0: the seed chooses");
  sim->add_option("--steps", options->simulation.steps, "Steps of each worker; 0: the seed chooses")
      ->check(CLI::Range(0, 1000000));
  sim->add_option("--faults", options->simulation.faults,
                  "all, or a list: drop,duplicate,delay,slow,cut,kill,vanish,killserver,killhead,"
                  "pause,isolate,haste; empty: none")
      ->capture_default_str();
  CLI::Option* const jobs =
      sim->add_option("--jobs", options->jobs, "Threads")->check(kThreads)->capture_default_str();
  sim->add_option("--failures-max", options->failures_max, "Stop after so many failures")
      ->check(kNatural)
      ->check(CLI::Range(uint64_t{1}, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  CLI::Option* const coverage =
      sim->add_flag("--coverage", options->coverage, "Print what met what");
  sim->add_flag("--hashes", options->hashes,
                "Print the hash of each run, by one thread and in order, and nothing else")
      ->excludes(jobs, coverage);
  return sim;
}

CLI::App* AddExplore(CLI::App* app, tkv::cli::ExploreOptions* options) {
  CLI::App* const explore = app->add_subcommand(
      "explore", "Go through every order of events of small jobs, and check every guarantee");
  CLI::Option* const scope = explore->add_option("scope", options->scopes,
                                                 "Names of jobs; default all that are not large");
  explore->add_flag("--large", options->large, "All, the large ones too: hours")->excludes(scope);
  explore->add_flag("--list", options->list, "Print the names")->excludes(scope);
  explore->add_option("--states-max", options->states_max, "Give up on a job with more; 0: never")
      ->check(kNatural);
  explore->add_option("--jobs", options->jobs, "Threads")->check(kThreads)->capture_default_str();
  return explore;
}

CLI::App* AddLaunch(CLI::App* app, tkv::cli::LaunchOptions* options) {
  CLI::App* const launch = app->add_subcommand(
      "launch",
      "Start a job, here or on several hosts: a head, servers, and workers that run COMMAND");
  launch->add_option("-n,--workers", options->workers, "Workers")
      ->capture_default_str()
      ->check(kProcesses);
  launch->add_option("-s,--servers", options->servers, "Servers")
      ->capture_default_str()
      ->check(kProcesses);
  launch
      ->add_option("--restart", options->restarts,
                   "How often a worker that has failed is started again")
      ->check(CLI::Range(0, 1000000));
  launch
      ->add_option("--restore", options->restore,
                   "A folder of snapshots: the job goes on from the newest one, and with --restart "
                   "starts again from it when a server has died; with --snapshot-every it may be "
                   "empty, and is where snapshots go")
      ->check(kNotEmpty);
  launch->add_option("--log", options->log_folder, "A folder for one log per process")
      ->check(kNotEmpty);
  launch
      ->add_option("--grace", options->grace_seconds,
                   "Seconds that the others have when one has failed")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  launch->add_flag("--tcp", options->tcp, "Loopback TCP with a token instead of Unix sockets")
      ->disable_flag_override();
  CLI::Option* const hosts =
      launch
          ->add_option(
              "--hosts", options->hosts,
              "A file with a host in each line: workers and servers are spread over them by "
              "ssh (TKV_SSH: another command)")
          ->check(kNotEmpty);
  launch
      ->add_option("--address", options->address,
                   "Of this machine, where those hosts reach it; default that of the route to the "
                   "first")
      ->check(kNotEmpty)
      ->needs(hosts);
  launch
      ->add_option("-x,--env", options->variables,
                   "NAME: a variable that other hosts are told too, beside TKV_*; NAME=VALUE: one "
                   "that all processes "
                   "of the job have")
      ->allow_extra_args(false);
  // For the help text: TakeCommand cuts the command off before the parser sees the words.
  launch->add_option("COMMAND", options->command, "What each worker runs, passed on byte for byte");
  return launch;
}

CLI::App* AddDoctor(CLI::App* app, tkv::cli::DoctorOptions* options) {
  CLI::App* const doctor =
      app->add_subcommand("doctor", "Say what stands in the way of a job, and how to repair it");
  CLI::Option* const hosts = doctor
                                 ->add_option("--hosts", options->hosts,
                                              "A file with a host in each line: looks there too")
                                 ->check(kNotEmpty);
  doctor
      ->add_option("--address", options->address,
                   "Of this machine, where those hosts reach it; default that of the route there")
      ->check(kNotEmpty)
      ->needs(hosts);
  doctor->add_option("--patience", options->patience_seconds, "Seconds that a host may say nothing")
      ->check(CLI::Range(1, 600))
      ->needs(hosts)
      ->capture_default_str();
  return doctor;
}

CLI::App* AddServe(CLI::App* app, const char* name, const char* help,
                   tkv::cli::ServeOptions* options) {
  CLI::App* const serve = app->add_subcommand(name, help);
  serve->add_option("--head", options->head, "Where the head is; default TKV_HEAD")
      ->check(kNotEmpty);
  serve->add_option("--job", options->id, "Name of the job; default TKV_JOB")->check(kNotEmpty);
  if (options->role == tkv::Job::Role::kHead) {
    serve->add_option("--workers", options->workers, "Workers; default TKV_WORKERS")
        ->check(kProcesses);
    serve->add_option("--servers", options->servers, "Servers; default TKV_SERVERS")
        ->check(kProcesses);
  } else {
    serve->add_option("--rank", options->rank, "Which server; default TKV_RANK, else any")
        ->check(CLI::Range(0, 4095));
  }
  serve->add_flag("--quiet", options->quiet, "Do not print where it listens");
  return serve;
}

bool TakesValue(const CLI::App& app, const std::string& name) {
  const CLI::Option* const option = app.get_option_no_throw(name);
  return option != nullptr && option->get_items_expected_min() > 0;
}

// Where the command of `tkv launch` begins among the words: at the first that is no option of the
// launcher's and no value of one, or behind "--".  The parser never sees the command, because the
// parser would take brackets, empty words and dashes in it for syntax of its own.
size_t BeginOfCommand(const CLI::App& launch, const std::vector<std::string>& words) {
  size_t i = 2;
  for (; i < words.size() && words[i].size() > 1 && words[i][0] == '-'; ++i) {
    if (words[i] == "--") break;
    const bool is_long = words[i][1] == '-';
    const std::string name =
        is_long ? words[i].substr(0, words[i].find('=')) : words[i].substr(0, 2);
    if (name.size() == words[i].size() && TakesValue(launch, name)) ++i;
  }
  return std::min(i, words.size());
}

// Cuts the command off the words.
std::vector<std::string> TakeCommand(const CLI::App& launch, std::vector<std::string>* words) {
  if (words->size() < 2 || (*words)[1] != launch.get_name()) return {};
  const auto begin = words->begin() + static_cast<ptrdiff_t>(BeginOfCommand(launch, *words));
  const bool is_marked = begin != words->end() && *begin == "--";
  std::vector<std::string> command(begin + static_cast<ptrdiff_t>(is_marked), words->end());
  words->erase(begin, words->end());
  return command;
}

//   throws  kInvalidArgument  the first word names no subcommand
void CheckSubcommand(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.size() < 2 || words[1].empty() || words[1][0] == '-') return;
  std::vector<std::string_view> names;
  std::string list;
  for (const CLI::App* const sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == words[1]) return;
    if (sub->get_group().empty()) continue;
    names.push_back(sub->get_name());
    list += (list.empty() ? "" : ", ") + sub->get_name();
  }
  const std::string hint = tkv::DidYouMean(words[1], names);
  throw tkv::Error(tkv::Code::kInvalidArgument, "there is no command '" + words[1] + "'" +
                                                    (hint.empty() ? "; there are " + list : hint));
}

// What a subcommand was given that none of its options takes, with the nearest option.
std::string Unexpected(const CLI::App& app) {
  std::string sentence;
  for (const CLI::App* const sub : app.get_subcommands()) {
    std::vector<std::string> flags;
    for (const CLI::Option* const option : sub->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
    const std::vector<std::string_view> names(flags.begin(), flags.end());
    for (const std::string& word : sub->remaining()) {
      const std::string name = word.substr(0, word.find('='));
      sentence += "tkv: " + sub->get_name() + ": '" + word + "' was not expected" +
                  tkv::DidYouMean(name, names) + "\n";
    }
  }
  return sentence + "`tkv SUBCOMMAND --help` lists what there is\n";
}

// The parser's own statuses of usage errors are 105 and the like; here all are 2.
int StatusOf(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::cerr << Unexpected(app);
    return 2;
  }
  return app.exit(error) == 0 ? 0 : 2;
}

// The command line: each subcommand with the options that the parser fills in.
class Tkv {
 public:
  Tkv() {
    app_.set_version_flag("--version", std::string("tkv ") + tkv::Version());
    app_.require_subcommand(1);
    app_.footer(
        "`tkv launch -n 2 -s 2 python train.py` starts two workers and two servers; `tkv launch "
        "--help` "
        "says more");
    flags_.AddTo(launch_, " of the whole job.");
    restorer_->add_option("PATH", restored_path_)->required();
    launch_->get_option("--tcp")->excludes(launch_->get_option("--transport"));
    for (CLI::App* const serving : {server_, head_}) flags_.AddTo(serving, " of this process.");
  }

  // The process's exit status.
  int Run(std::vector<std::string> words) {
    try {
      Parse(std::move(words));
      return RunChosen();
    } catch (const CLI::ParseError& error) {
      return StatusOf(app_, error);
    } catch (const tkv::Error& error) {
      std::fprintf(stderr, "tkv: %s\n", error.what());
      return 2;
    }
  }

 private:
  void Parse(std::vector<std::string> words) {
    if (words.size() == 2 && words[1] == "help") words[1] = "--help";
    CheckSubcommand(app_, words);
    const std::vector<std::string> command = TakeCommand(*launch_, &words);
    std::vector<const char*> pointers;
    pointers.reserve(words.size());
    for (const std::string& word : words) pointers.push_back(word.c_str());
    app_.parse(static_cast<int>(pointers.size()), pointers.data());
    launch_options_.command = command;
    flags_.Apply();
  }

  int RunChosen() const {
    if (*config_) std::fputs(tkv::ConfigText().c_str(), stdout);
    if (*agent_) return tkv::cli::RunAgent();
    if (*restorer_) return tkv::cli::RunRestorer(restored_path_);
    if (*doctor_) return tkv::cli::RunDoctor(doctor_options_);
    if (*explore_) return tkv::cli::RunExplore(explore_options_);
    if (*launch_) return tkv::cli::Launch(launch_options_);
    if (*server_) return tkv::cli::RunServe(server_options_);
    if (*head_) return tkv::cli::RunServe(head_options_);
    if (*sim_) return tkv::cli::RunSim(sim_options_);
    return 0;
  }

  tkv::cli::LaunchOptions launch_options_;
  tkv::cli::DoctorOptions doctor_options_;
  tkv::cli::ServeOptions server_options_{tkv::Job::Role::kServer};
  tkv::cli::ServeOptions head_options_{tkv::Job::Role::kHead};
  tkv::cli::SimOptions sim_options_;
  tkv::cli::ExploreOptions explore_options_;
  OptionFlags flags_;
  CLI::App app_{"TensorKV: a store for sharing tensors"};
  // In the order in which the help lists them.
  CLI::App* const launch_ = AddLaunch(&app_, &launch_options_);
  CLI::App* const doctor_ = AddDoctor(&app_, &doctor_options_);
  CLI::App* const agent_ =
      app_.add_subcommand("agent", "One process of a job, for a launcher on another host")
          ->group("");
  std::string restored_path_;
  CLI::App* const restorer_ =
      app_.add_subcommand("restorer", "The first life of a worker of a job that goes on")
          ->group("");
  CLI::App* const server_ = AddServe(
      &app_, "server", "Serve the keys of a job until all workers have left", &server_options_);
  CLI::App* const head_ =
      AddServe(&app_, "head", "Say who takes part in a job until all have left", &head_options_);
  CLI::App* const config_ =
      app_.add_subcommand("config", "Show what this build is and the options in force");
  CLI::App* const sim_ = AddSim(&app_, &sim_options_);
  CLI::App* const explore_ = AddExplore(&app_, &explore_options_);
};

}  // namespace

int main(int argc, char** argv) {
  tkv::cli::OpenStandardFiles();
  return Tkv().Run({argv, argv + argc});
}
