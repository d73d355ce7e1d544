#include "commands.h"

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include "agent.h"
#include "bench.h"
#include "checkers.h"
#include "completion.h"
#include "dashboard.h"
#include "doctor.h"
#include "exit_status.h"
#include "explain.h"
#include "jobs.h"
#include "json.h"
#include "launch.h"
#include "look.h"
#include "manual.h"
#include "programs.h"
#include "raw_link.h"
#include "restore.h"
#include "serve.h"
#include "shape.h"
#include "tkv/config.h"
#include "tkv/optimizer.h"
#include "top.h"
#include "validators.h"

namespace tkv::cli {
namespace {

void AddLaunch(CommandLine* line) {
  const auto options = std::make_shared<LaunchOptions>();
  CLI::App* const launch = line->Add(
      "launch",
      "Start a job, here or on several hosts: a head, servers, and workers that run COMMAND",
      [options](Form form) { return Launch(*options, form); });
  launch->add_option("-n,--workers", options->workers, "Workers")
      ->capture_default_str()
      ->check(kProcesses);
  launch->add_option("-s,--servers", options->servers, "Servers")
      ->capture_default_str()
      ->check(kProcesses);
  launch
      ->add_option("--restart", options->restarts,
                   "Start a worker that has failed again, at most so often; default 0")
      ->check(Between(0, 1000000));
  launch
      ->add_option(
          "--restore", options->restore,
          "Go on from the newest snapshot of this folder, or of --snapshots, where the job has "
          "saved itself. With --restart the job goes on so when a server has died, too. With "
          "--snapshot-every the folder may be empty, and is where snapshots go")
      ->type_name(kFolder)
      ->check(kNotEmpty);
  launch->add_option("--log", options->log_folder, "Write one log per process into this folder")
      ->type_name(kFolder)
      ->check(kNotEmpty);
  launch
      ->add_option("--name", options->name,
                   "The beginning of the job's name, by which `tkv status NAME` finds it")
      ->check(kNameOfJob);
  launch
      ->add_option("--stdin", options->stdin_rank,
                   "The rank of the worker that reads this command's stdin, or none")
      ->type_name("RANK")
      ->default_str("0")
      ->check(kNotEmpty);
  launch
      ->add_option("--grace", options->grace_seconds,
                   "Seconds that the other processes have to end when one has failed")
      ->check(Between(0, 1000000))
      ->capture_default_str();
  CLI::Option* const tcp =
      launch
          ->add_flag("--tcp", options->tcp, "Use loopback TCP with a token instead of Unix sockets")
          ->disable_flag_override();
  CLI::Option* const hosts =
      launch
          ->add_option("--hosts", options->hosts,
                       "Spread workers and servers over the hosts of this file, one in each line, "
                       "by ssh (TKV_SSH: another command)")
          ->type_name(kFile)
          ->check(kNotEmpty);
  launch
      ->add_option("--address", options->address,
                   "The address of this machine, as those hosts reach it; default that of the "
                   "route to the first")
      ->check(kNotEmpty)
      ->needs(hosts);
  launch
      ->add_option("-x,--env", options->variables,
                   "NAME: pass this variable on to other hosts, as TKV_* are. NAME=VALUE: set it "
                   "in all processes of the job")
      ->allow_extra_args(false);
  line->PassOn(launch, &options->command);
  line->AddOptionFlags(launch, "Options of the whole job, and the variable that each sets");
  tcp->excludes(launch->get_option("--transport"));
}

void AddDoctor(CommandLine* line) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* const doctor =
      line->Add("doctor", "Say what stands in the way of a job, and how to repair it",
                [options](Form form) { return RunDoctor(*options, form); });
  CLI::Option* const hosts = doctor
                                 ->add_option("--hosts", options->hosts,
                                              "A file with a host in each line: looks there too")
                                 ->type_name(kFile)
                                 ->check(kNotEmpty);
  doctor
      ->add_option("--address", options->address,
                   "Of this machine, where those hosts reach it; default that of the route there")
      ->check(kNotEmpty)
      ->needs(hosts);
  doctor->add_option("--patience", options->patience_seconds, "Seconds that a host may say nothing")
      ->check(Between(1, 600))
      ->needs(hosts)
      ->capture_default_str();
}

void AddAgent(CommandLine* line) {
  line->AddHidden("agent", "One process of a job, for a launcher on another host", RunAgent);
}

void AddRestorer(CommandLine* line) {
  const auto path = std::make_shared<std::string>();
  line->AddHidden("restorer", "The first life of a worker of a job that goes on",
                  [path] { return RunRestorer(*path); })
      ->add_option("PATH", *path)
      ->required();
}

CLI::App* AddServing(CommandLine* line, Job::Role role, const char* help,
                     const std::shared_ptr<ServeOptions>& options) {
  options->role = role;
  CLI::App* const serve =
      line->Add(Name(role), help, [options](Form form) { return RunServe(*options, form); });
  serve->add_option("--head", options->head, "Where the head is; default TKV_HEAD")
      ->check(kNotEmpty);
  serve->add_option("--job", options->id, "Name of the job; default TKV_JOB")->check(kNotEmpty);
  serve->add_flag("--quiet", options->quiet, "Do not print where it listens");
  line->AddOptionFlags(serve, "Options of this process, and the variable that each sets");
  return serve;
}

void AddServer(CommandLine* line) {
  const auto options = std::make_shared<ServeOptions>();
  AddServing(line, Job::Role::kServer, "Serve the keys of a job until all workers have left",
             options)
      ->add_option("--rank", options->rank, "Which server; default TKV_RANK, else any")
      ->check(Between(0, kWorkersMax - 1));
}

void AddHead(CommandLine* line) {
  const auto options = std::make_shared<ServeOptions>();
  CLI::App* const head = AddServing(line, Job::Role::kHead,
                                    "Say who takes part in a job until all have left", options);
  head->add_option("--workers", options->workers, "Workers; default TKV_WORKERS")
      ->check(kProcesses);
  head->add_option("--servers", options->servers, "Servers; default TKV_SERVERS")
      ->check(kProcesses);
}

int ShowConfig(Form form) {
  const std::string text = ConfigText();
  const std::vector<std::string> warnings = UnknownVariables();
  if (form == Form::kText) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    for (const std::string& one : warnings) std::fprintf(stderr, "tkv: %s\n", one.c_str());
    return kDone;
  }
  JsonObject config("config");
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) {
    const size_t equals = one.find(" = ");
    config.Add(one.substr(0, equals), one.substr(equals + 3));
  }
  config.Add("warnings", warnings);
  Print(config);
  return kDone;
}

void AddConfig(CommandLine* line) {
  line->Add("config", "Show what this build is and the options in force", ShowConfig);
}

// Adds the options that locate a running job.
void AddFinding(CLI::App* app, LookOptions* options) {
  app->add_option("--token-file", options->token_file,
                  "The secret of the job; default TKV_TOKEN_FILE")
      ->type_name(kFile)
      ->check(kNotEmpty);
  app->add_option("--patience", options->patience_seconds,
                  "Seconds for the head and each server to answer")
      ->check(Between(1, 600))
      ->capture_default_str();
}

CLI::Option* AddUrl(CLI::App* app, LookOptions* options) {
  return app
      ->add_option(
          "URL", options->url,
          "tkv://HOST:PORT/JOB, as kv.url says, or a name that `tkv jobs` lists; default the job "
          "of TKV_HEAD, or the only one of this machine")
      ->check(kNotEmpty);
}

void AddStatus(CommandLine* line) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* const status = line->Add(
      "status", "Say who takes part in a running job, what it holds, and who waits for whom",
      [options](Form form) { return RunStatus(*options, form); });
  AddUrl(status, options.get());
  AddFinding(status, options.get());
  CLI::Option* const probe = status->add_flag(
      "--probe", options->probes,
      "Print one line, and exit with 0 if the job is healthy, else with 1: for orchestrators");
  status
      ->add_option("--stuck-after", options->stuck_after_seconds,
                   "A round that waits longer for a worker is not healthy: the job stands still")
      ->type_name("SECONDS")
      ->check(Between(0.001, 1e6))
      ->needs(probe);
  CLI::Option* const metrics = status
                                   ->add_option("--metrics", options->metrics_port,
                                                "Serve metrics in Prometheus' text form at this "
                                                "port until a signal comes; 0: any that is free")
                                   ->type_name("PORT")
                                   ->check(Between(0, 65535))
                                   ->excludes(probe);
  status->add_option("--bind", options->bind, "The address that --metrics listens at")
      ->type_name("ADDRESS")
      ->capture_default_str()
      ->needs(metrics);
}

void AddJobs(CommandLine* line) {
  line->Add("jobs", "List your jobs on this machine, with the process that runs the head of each",
            RunJobs);
}

void AddTop(CommandLine* line) {
  const auto options = std::make_shared<TopOptions>();
  CLI::App* const top = line->Add("top", "Show how fast a running job is, by key and by worker",
                                  [options](Form form) { return RunTop(*options, form); });
  AddUrl(top, options.get());
  AddFinding(top, options.get());
  top->add_option("--interval", options->interval_seconds, "Seconds between two tables")
      ->check(Between(0.1, 3600.0))
      ->capture_default_str();
  top->add_option("--count", options->count, "Tables; 0: until the job ends")->check(kNatural);
}

void AddDashboard(CommandLine* line) {
  const auto options = std::make_shared<DashboardOptions>();
  CLI::App* const dashboard =
      line->Add("dashboard", "Serve a page for a browser that shows a running job",
                [options](Form form) { return RunDashboard(*options, form); });
  AddUrl(dashboard, options.get());
  AddFinding(dashboard, options.get());
  dashboard
      ->add_option("--port", options->port, "The port of the page on the loopback; 0: any free one")
      ->check(Between(0, 65535))
      ->capture_default_str();
}

void AddKeys(CommandLine* line) {
  const auto options = std::make_shared<LookOptions>();
  CLI::App* const keys =
      line->Add("keys", "List the keys of a running job, with dtype, shape, size and round",
                [options](Form form) { return RunKeys(*options, form); });
  AddUrl(keys, options.get());
  AddFinding(keys, options.get());
}

void AddGet(CommandLine* line) {
  const auto options = std::make_shared<GetOptions>();
  CLI::App* const get = line->Add("get", "Write the value of a key of a running job to a file",
                                  [options](Form form) { return RunGet(*options, form); });
  get->add_option("KEY", options->key, "As tkv keys lists it")->required();
  AddUrl(get, options.get());
  get->add_option("-o,--out", options->file, "A file that ends in .npy or .safetensors")
      ->type_name(kFile)
      ->required()
      ->check(kNotEmpty);
  get->add_option("--store", options->store, "Its number, in the order of create()")
      ->check(kNatural)
      ->capture_default_str();
  AddFinding(get, options.get());
}

void AddExplain(CommandLine* line) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App* const explain =
      line->Add("explain", "Say what a server computes with an update program or an optimizer",
                [options](Form form) { return RunExplain(*options, form); });
  CLI::Option* const file =
      explain
          ->add_option("FILE", options->file,
                       "The text of a program (docs/programs.md); -: standard input")
          ->type_name(kFile);
  CLI::Option* const optimizer =
      explain->add_option("--optimizer", options->optimizer, "A built-in, by its name")
          ->type_name(OneOf(BuiltinOptimizers()))
          ->check(kNotEmpty)
          ->excludes(file);
  CLI::Option* const key =
      explain
          ->add_option("--key", options->key,
                       "A key of a running job, as tkv keys lists it: what its server computes now")
          ->each([options](const std::string&) { options->has_key = true; })
          ->excludes(file)
          ->excludes(optimizer);
  explain
      ->add_option("--url", options->url,
                   "Of that job, as kv.url says; default the job of TKV_HEAD, or the only one of "
                   "this machine")
      ->check(kNotEmpty)
      ->needs(key);
  explain->add_option("--store", options->store, "Of that job, in the order of create()")
      ->check(kNatural)
      ->needs(key)
      ->capture_default_str();
  AddFinding(explain, options.get());
  for (const char* const name : {"--token-file", "--patience"}) {
    explain->get_option(name)->needs(key);
  }
  explain
      ->add_option("-p,--param", options->params,
                   "NAME=VALUE: a hyperparameter that is not at its default")
      ->allow_extra_args(false);
  explain
      ->add_option("--round", options->round,
                   "For which numbers are shown; default the first, or the next one of the key")
      ->check(kNatural)
      ->check(Between(1.0, 9007199254740992.0));
  explain
      ->add_option("--workers", options->workers,
                   "That push in that round; default one, or those of the job")
      ->check(kProcesses);
}

void AddBench(CommandLine* line) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* const bench =
      line->Add("bench", "Measure what stores reach on this machine, beside what it allows",
                [options](Form form) { return RunBench(*options, form); });
  bench
      ->add_option("--seconds", options->seconds,
                   "How long it may take, at most 60, as far as one round fits")
      ->check(Between(1, 60))
      ->capture_default_str();
  bench->add_option("--svg", options->svg, "A file for the picture")
      ->type_name(kFile)
      ->check(kNotEmpty);
  bench
      ->add_option(
          "--peer", options->peer,
          "A host that ssh reaches (TKV_SSH: another command): TCP is measured between here "
          "and there; default the loopback")
      ->type_name("HOST")
      ->check(kHost);
}

void AddEcho(CommandLine* line) {
  const auto address = std::make_shared<std::string>();
  const auto secret = std::make_shared<std::string>();
  CLI::App* const echo = line->AddHidden("echo", "Send everything back, for tkv bench",
                                         [address, secret] { return RunEcho(*address, *secret); });
  echo->add_option("ADDRESS", *address)->required();
  echo->add_option("SECRET", *secret)->required();
}

void AddCompletion(CommandLine* line) {
  const auto shell = std::make_shared<std::string>();
  line->Add("completion", "Print a script by which a shell completes what is typed after tkv",
            [line, shell](Form form) { return RunCompletion(line->app(), *shell, form); })
      ->add_option("SHELL", *shell, "Which shell")
      ->type_name(OneOf(Shells()))
      ->required();
}

void AddManual(CommandLine* line) {
  const auto folder = std::make_shared<std::string>();
  line->AddHidden("manual", "Write the manual pages into a folder",
                  [line, folder] { return RunManual(line->app(), *folder); })
      ->add_option("FOLDER", *folder)
      ->required()
      ->check(kNotEmpty);
}

}  // namespace

void AddCommands(CommandLine* line) {
  line->BeginGroup("Run a job");
  AddLaunch(line);
  AddServer(line);
  AddHead(line);
  line->BeginGroup("Look into a running job");
  AddJobs(line);
  AddStatus(line);
  AddTop(line);
  AddDashboard(line);
  AddKeys(line);
  AddGet(line);
  AddExplain(line);
  line->BeginGroup("Check this machine and this build");
  AddDoctor(line);
  AddConfig(line);
  AddBench(line);
  AddCompletion(line);
  line->BeginGroup("Check the protocol");
  AddCheckers(line);
  AddManual(line);
  AddEcho(line);
  AddAgent(line);
  AddRestorer(line);
}

}  // namespace tkv::cli
