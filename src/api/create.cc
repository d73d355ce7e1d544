#include <algorithm>
#include <atomic>
#include <cctype>
#include <vector>

#include "base/format.h"
#include "base/process.h"
#include "dist/dist_store.h"
#include "dist/observer_store.h"
#include "dist/save_schedule.h"
#include "job/cluster.h"
#include "job/process_job.h"
#include "options/option_table.h"
#include "store/local_store.h"
#include "store/types.h"
#include "tkv/config.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

// Checks that rank and num_workers are given only to a bootstrap that does not know them.
void CheckRank(const std::string& name, const StoreOptions& options) {
  if (!options.url.empty() && options.num_workers == 0) return;
  if (options.rendezvous != nullptr || (options.rank < 0 && options.num_workers == 0)) return;
  if (options.bootstrap == "self" && options.rank <= 0 && options.num_workers <= 1) return;
  const bool is_started = IsLaunched() || IsInGroup();
  throw Fail(Code::kInvalidArgument,
             "create '{}': rank={}, num_workers={}: these go with a bootstrap object; here {}",
             name, options.rank, options.num_workers,
             options.bootstrap == "self" ? "the job has one worker"
             : is_started                ? "the launcher says both"
                                         : "there is none, such as a torch.distributed.TCPStore");
}

// Checks that only one option names the job.
void CheckOneWay(const std::string& name, const StoreOptions& options) {
  const bool has_bootstrap = !options.bootstrap.empty() || options.rendezvous != nullptr;
  if (!options.url.empty() && has_bootstrap) {
    throw Fail(Code::kInvalidArgument,
               "create '{}': url='{}' and bootstrap; one of them says which job is meant", name,
               options.url);
  }
  if (options.url.empty() && (!options.token.empty() || !options.token_file.empty())) {
    throw Fail(
        Code::kInvalidArgument,
        "create '{}': a token is that of the job that url names; a launcher's is in the file "
        "that TKV_TOKEN_FILE names",
        name);
  }
}

// Logs which sign decides if several signs name a job for this process.
void TellSigns(const StoreOptions& options) {
  if (!options.log) return;
  std::string decides;
  std::vector<std::string> others;
  if (!options.url.empty()) decides = Format("url='{}'", options.url);
  for (const JobSign& sign : JobSigns()) {
    // Processes of torchrun have a bootstrap object.  C++ code without one cannot ask torchrun.
    const bool is_torchrun = sign.by == JobSign::By::kTorchrun;
    if (decides.empty() && is_torchrun == (options.rendezvous != nullptr)) {
      decides = sign.text;
    } else {
      others.push_back(sign.text);
    }
  }
  if (others.empty()) return;
  if (decides.empty()) decides = "bootstrap";
  options.log(1, Format("the job is that of {}; not that of {}", decides, Join(others, " or ")));
}

// Throws if this worker asks for a job-wide option with another value than the job has.
void CheckAgainstJob(const std::string& name, const StoreOptions& options, const Worker& worker) {
  if (!options.on_death.empty() && options.on_death != NameOf(worker.policy())) {
    throw Fail(Code::kFailedPrecondition,
               "create '{}': on_death='{}', the job has '{}': who starts the job decides (`tkv "
               "launch --on-death {}`, or TKV_ON_DEATH of the head)",
               name, options.on_death, NameOf(worker.policy()), options.on_death);
  }
  if (options.servers > 0 && options.servers != worker.servers()) {
    throw Fail(Code::kFailedPrecondition, "create '{}': servers={}, the job has {}", name,
               options.servers, worker.servers());
  }
}

// Returns true if the program asks for job-wide options that differ from those of the launcher.
bool SaysMoreThanLauncher(const StoreOptions& options) {
  const StoreOptions told = OptionsFromEnvironment();
  return options.on_death != told.on_death || options.servers != told.servers;
}

std::unique_ptr<KVStore> CreateDistributed(const std::string& name, const StoreOptions& options) {
  CheckOneWay(name, options);
  CheckRank(name, options);
  CheckSchedule(options.snapshots, options.snapshot_every);  // before any process joins
  std::shared_ptr<Worker> worker;
  if (options.bootstrap == "self") {
    ClusterOptions cluster;
    cluster.servers = options.servers == 0 ? 1 : options.servers;
    cluster.policy = PolicyFromName(options.on_death);
    cluster.log = options.log;
    cluster.rows_dir = options.rows_dir;
    cluster.silence = options.silence;
    worker = WorkerOf(std::make_shared<Cluster>(cluster), 0, name, options);
  } else if (options.rendezvous != nullptr) {
    TellSigns(options);
    worker = WorkerByRendezvous(name, options);
  } else if (!options.bootstrap.empty()) {
    throw Fail(Code::kInvalidArgument,
               "create '{}': bootstrap='{}': 'self' is needed, or an object that all processes "
               "share, such as a torch.distributed.TCPStore",
               name, options.bootstrap);
  } else if (options.url.empty() && !IsLaunched() && IsInGroup()) {
    TellSigns(options);
    worker = WorkerInGroup(name, options);
  } else {
    TellSigns(options);
    const Job job = JobOf(options);
    if (job.role == Job::Role::kObserver) {
      throw Fail(Code::kFailedPrecondition,
                 "create '{}': this process is an observer of its job; connect opens a store to "
                 "look and to read",
                 name);
    }
    if (job.role != Job::Role::kWorker) {
      throw Fail(Code::kFailedPrecondition,
                 "create '{}': this process is a {} of the job, only workers have stores; "
                 "`tkv {}` serves, as does tensorkv.kvstore_server",
                 name, Name(job.role), Name(job.role));
    }
    // Compare the options through an observer, so that a worker with wrong options does not join
    // the job.
    if (SaysMoreThanLauncher(options)) {
      CheckAgainstJob(name, options, *ObserverOf(options, job, Format("create '{}'", name)));
    }
    worker = WorkerOfProcess(name, options, job);
  }
  StoreOptions own = options;
  // The workers of a machine share its cores.
  if (own.threads == 0) own.threads = std::max(1, UsableCores() / worker->local_workers());
  if (own.log) {
    own.log(0, Format("worker {}: large operations use {} of {} cores", worker->rank(), own.threads,
                      UsableCores()));
  }
  auto store = std::make_unique<DistStore>(name, own, worker);
  // If this throws, the store is dropped and leaves the job.
  CheckAgainstJob(name, options, *worker);
  return store;
}

// Warns once in a process.
void WarnOfUnknownVariables(const StoreOptions& options) {
  static std::atomic<bool> has_warned{false};
  if (!options.log || has_warned.exchange(true)) return;
  for (const std::string& sentence : UnknownVariables()) options.log(2, sentence);
}

std::string Lowered(std::string_view type) {
  std::string name(type);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

// Returns true for a text without the characters that a URL or an address has.
bool IsNameOfJob(std::string_view text) {
  return text.find_first_of(":/") == std::string_view::npos;
}

}  // namespace

std::unique_ptr<KVStore> KVStore::Connect(std::string_view url, const StoreOptions& given,
                                          uint32_t store) {
  StoreOptions options = CheckedOptions("connect", given);
  WarnOfUnknownVariables(options);
  if (options.rank >= 0 || options.num_workers > 0 || !options.bootstrap.empty() ||
      options.rendezvous != nullptr) {
    throw Fail(Code::kInvalidArgument, "connect: an observer has no rank and starts no job");
  }
  try {
    options.url = IsNameOfJob(url) ? FindJob(url) : std::string(url);
    const Job job = JobOf(options);
    return std::make_unique<ObserverStore>(options, ObserverOf(options, job), store);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("connect")) throw;
    throw error.WithMessage(Format("connect: {}", error.what()));
  }
}

std::unique_ptr<KVStore> KVStore::Create(std::string_view type, const StoreOptions& given) {
  const std::string name = Lowered(type);
  const StoreOptions options = CheckedOptions(given);
  WarnOfUnknownVariables(options);
  if (IsLocal(name) || IsDistributed(name)) CheckEffects(name, options);
  if (IsLocal(name)) return MakeLocalStore(name, options);
  if (IsDistributed(name)) return CreateDistributed(name, options);
  if (name == "horovod" || name == "byteps") {
    throw Fail(
        Code::kUnimplemented,
        "create '{}': another library's store; 'dist_sync' sums over all workers, as it does",
        name);
  }
  std::vector<std::string_view> names;
  for (const StoreType& known : StoreTypes()) names.push_back(known.name);
  const std::string there_are = Join(names, ", ");
  names.insert(names.end(), {"horovod", "byteps"});  // a misspelling of them deserves a hint, too
  throw Fail(Code::kInvalidArgument, "create '{}': no such type; there are {}{}", type, there_are,
             DidYouMean(name, names));
}

}  // namespace tkv
