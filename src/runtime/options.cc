// The only place that reads the environment.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/format.h"
#include "base/logfmt.h"
#include "base/nearest.h"
#include "base/process.h"
#include "kernels/targets.h"
#include "runtime/log_line.h"
#include "runtime/option_table.h"
#include "tkv/config.h"
#include "tkv/gpu.h"
#include "tkv/job.h"
#include "transport/address.h"
#include "transport/factory.h"
#include "update/parallel.h"
#include "wire/message.h"

namespace tkv {

const char* Variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

namespace {

constexpr std::array<const char*, 4> kLevels = {"debug", "info", "warning", "error"};

std::string NeedVariable(const char* name, const char* hint = "") {
  if (const char* const text = Variable(name)) return text;
  throw Fail(Code::kInvalidArgument, "{} is not set, and the job needs it{}", name, hint);
}

int ReadNumber(const char* name, int fallback, int low, int high) {
  const char* const text = Variable(name);
  if (text == nullptr) return fallback;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    throw Fail(Code::kInvalidArgument, "{}='{}': a whole number from {} to {} is needed", name,
               text, low, high);
  }
  return value;
}

int NeedNumber(const char* name, int low, int high) {
  NeedVariable(name);
  return ReadNumber(name, 0, low, high);
}

constexpr int kServersHigh = static_cast<int>(kServersMax);
constexpr int kPortMax = 65'535;

// Returns the local time: "2026-11-22T23:08:01.123".
std::string TimeText() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return Format("{}.{:03}", std::string_view(text, size), now.tv_nsec / 1'000'000);
}

// Returns the part of a log line that names this process, as far as a launcher has set role and
// rank.
std::string WhoIsThis() {
  std::string text = Format("pid={}", getpid());
  if (const char* const role = Variable("TKV_ROLE")) text += Format(" role={}", role);
  if (const char* const rank = Variable("TKV_RANK")) text += Format(" rank={}", rank);
  return text;
}

// Throws if no head can be at these addresses.  Otherwise the error would only come after the job's
// patience.
void CheckHead(std::string_view named, const std::string& addresses, const Transport* carrier) {
  try {
    if (carrier != nullptr) {
      carrier->CanReach(addresses);
    } else {
      ParseAddresses(addresses);
    }
  } catch (const Error& error) {
    throw Fail(error.code(), "{}='{}': {}", named, addresses, error.what());
  }
}

Job TkvJob(const Transport* carrier) {
  Job job;
  const char* const role = Variable("TKV_ROLE");
  const std::string name = role == nullptr ? "worker" : role;
  if (name == "server") {
    job.role = Job::Role::kServer;
  } else if (name == "head") {
    job.role = Job::Role::kHead;
  } else if (name == "observer") {
    job.role = Job::Role::kObserver;
  } else if (name != "worker") {
    throw Fail(Code::kInvalidArgument, "TKV_ROLE='{}'; there are worker, server, head and observer",
               name);
  }
  if (const char* const id = Variable("TKV_JOB")) job.id = id;
  job.rank = ReadNumber("TKV_RANK", -1, 0, std::max(kWorkersMax, kServersHigh) - 1);
  if (job.role == Job::Role::kHead) {
    job.workers = NeedNumber("TKV_WORKERS", 1, kWorkersMax);
    job.servers = NeedNumber("TKV_SERVERS", 1, kServersHigh);
    if (const char* const head = Variable("TKV_HEAD")) job.head = head;
  } else {
    job.head = NeedVariable("TKV_HEAD", ": the address that `tkv head` prints");
  }
  if (!job.head.empty()) CheckHead("TKV_HEAD", job.head, carrier);
  return job;
}

// Returns the job of the variables of MXNet's launcher and of ps-lite.
Job DmlcJob() {
  Job job;
  const std::string role = NeedVariable("DMLC_ROLE");
  if (role == "server") {
    job.role = Job::Role::kServer;
  } else if (role == "scheduler") {
    job.role = Job::Role::kHead;
  } else if (role != "worker") {
    throw Fail(Code::kInvalidArgument, "DMLC_ROLE='{}'; there are worker, server and scheduler",
               role);
  }
  const std::string host = NeedVariable("DMLC_PS_ROOT_URI");
  const int port = NeedNumber("DMLC_PS_ROOT_PORT", 1, kPortMax);
  job.workers = NeedNumber("DMLC_NUM_WORKER", 1, kWorkersMax);
  job.servers = NeedNumber("DMLC_NUM_SERVER", 1, kServersHigh);
  try {
    const PeerAddress address = TcpAddress(host, static_cast<uint16_t>(port));
    job.id = Format("dmlc-{}-{}", address.host, port);
    // A job on one host needs no token, because it has a Unix socket whose name all processes know.
    job.head = Format("unix:{}/tkv-{}-{},{}", HostId(), geteuid(), job.id, ToString(address));
  } catch (const Error& error) {
    throw Fail(error.code(), "DMLC_PS_ROOT_URI='{}': {}", host, error.what());
  }
  return job;
}

}  // namespace

// Returns the signs in the order in which they decide.  torchrun comes before PMIx: it has started
// this process itself, and PMIx's variables may belong to the process that started torchrun.
std::vector<JobSign> JobSigns() {
  std::vector<JobSign> signs;
  const auto add = [&signs](JobSign::By by, std::string_view of,
                            std::initializer_list<const char*> names) {
    std::string found;
    for (const char* const name : names) {
      const char* const text = Variable(name);
      if (text != nullptr) found += Format("{}{}={}", found.empty() ? "" : " ", name, text);
    }
    signs.push_back({by, Format("{} ({})", of, found)});
  };
  if (Variable("TKV_ROLE") != nullptr || Variable("TKV_HEAD") != nullptr) {
    add(JobSign::By::kTensorkv, "tensorkv's variables",
        {"TKV_ROLE", "TKV_HEAD", "TKV_JOB", "TKV_RANK"});
  }
  if (Variable("DMLC_ROLE") != nullptr) {
    add(JobSign::By::kMxnet, "MXNet's variables",
        {"DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"});
  }
  if (Variable("TORCHELASTIC_RUN_ID") != nullptr) {
    add(JobSign::By::kTorchrun, "torchrun", {"TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"});
  }
  if (Variable("PMIX_NAMESPACE") != nullptr && Variable("PMIX_RANK") != nullptr) {
    add(JobSign::By::kPmix, "PMIx", {"PMIX_NAMESPACE", "PMIX_RANK"});
  }
  return signs;
}

bool IsLaunched() {
  const std::vector<JobSign> signs = JobSigns();
  return !signs.empty() && signs[0].by <= JobSign::By::kMxnet;
}

bool IsInGroup() {
  const std::vector<JobSign> signs = JobSigns();
  return !signs.empty() && signs.back().by == JobSign::By::kPmix;
}

bool IsSlurmTask() { return Variable("SLURM_PROCID") != nullptr && !IsInGroup(); }

Job JobFromEnvironment(std::shared_ptr<const Transport> carrier) {
  const std::vector<JobSign> signs = JobSigns();
  if (!IsLaunched()) {
    if (IsSlurmTask()) {
      throw Fail(
          Code::kFailedPrecondition,
          "nothing says who else takes part in the job: this is a task of Slurm without PMIx; "
          "start it by `srun --mpi=pmix` (`srun --mpi=list` has to name pmix), or start the job "
          "by `tkv launch -n WORKERS -s SERVERS COMMAND`");
    }
    throw Fail(Code::kFailedPrecondition,
               "nothing says who else takes part in the job. Start it by `tkv launch -n WORKERS "
               "-s SERVERS COMMAND`, `mpirun`, `srun --mpi=pmix` or `torchrun`, under Ray by "
               "tensorkv.ray.start(), or set the variables of MXNet's launcher (DMLC_ROLE, "
               "DMLC_PS_ROOT_URI, ...); url names a job, bootstrap is an object that all processes "
               "share, or 'self' for a job of this worker alone, and connect looks at a job from "
               "outside");
  }
  Job job = signs[0].by == JobSign::By::kTensorkv ? TkvJob(carrier.get()) : DmlcJob();
  job.token = TokenFromEnvironment();
  const StoreOptions options = OptionsFromEnvironment();
  static_cast<NetworkOptions&>(job) = options;
  job.carrier = std::move(carrier);
  if (!options.on_death.empty()) job.on_death = options.on_death;
  return job;
}

std::string TokenOfFile(const std::string& path, std::string_view named) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0 || access(path.c_str(), R_OK) != 0) {
    throw Fail(Code::kInvalidArgument, "{}='{}': {}", named, path, std::strerror(errno));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Fail(Code::kInvalidArgument, "{}='{}': others can read it; chmod 600 it", named, path);
  }
  constexpr size_t kTokenBytesMax = 4096;
  std::string token = StartOf(path, kTokenBytesMax);
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back()))) token.pop_back();
  constexpr size_t kTokenBytesMin = 16;
  if (token.size() < kTokenBytesMin) {
    throw Fail(Code::kInvalidArgument, "{}='{}': {} bytes, at least {} are needed", named, path,
               token.size(), kTokenBytesMin);
  }
  return token;
}

std::string TokenFromEnvironment() {
  const char* const path = Variable("TKV_TOKEN_FILE");
  return path == nullptr ? std::string() : TokenOfFile(path, "TKV_TOKEN_FILE");
}

Job JobOf(const StoreOptions& options) {
  if (options.url.empty()) return JobFromEnvironment(options.carrier);
  Job job = JobOfUrl(options.url);
  CheckHead("url", job.head, options.carrier.get());
  static_cast<NetworkOptions&>(job) = options;
  job.rank = options.rank;
  if (!options.token.empty() && !options.token_file.empty()) {
    throw Fail(Code::kInvalidArgument, "create: token and token_file; one of them says the secret");
  }
  job.token = !options.token.empty()        ? options.token
              : !options.token_file.empty() ? TokenOfFile(options.token_file)
                                            : TokenFromEnvironment();
  return job;
}

std::string DidYouMean(std::string_view word, std::span<const std::string_view> names) {
  const std::string_view nearest = Nearest(word, names);
  return nearest.empty() ? std::string() : Format("; did you mean '{}'?", nearest);
}

const char* Version() noexcept { return TKV_VERSION; }

int LocalWorkersFromEnvironment() { return ReadNumber("LOCAL_WORLD_SIZE", 1, 1, kWorkersMax); }

int Cores() { return UsableCores(); }

StoreOptions OptionsFromEnvironment() {
  StoreOptions options;
  for (const OptionInfo& option : OptionTable()) {
    const char* const text = Variable(option.environment);
    if (text == nullptr) continue;
    const std::string why = TrySetOption(&options, option.name, text);
    if (why.empty()) continue;
    throw Fail(Code::kInvalidArgument, "{}='{}': {} is needed", option.environment, text, why);
  }
  if (options.log_level == "off") return options;
  const auto level = std::find(kLevels.begin(), kLevels.end(), options.log_level) - kLevels.begin();
  options.log = [level, who = WhoIsThis()](int of, const std::string& text) {
    if (of < level) return;
    WriteLogLine(Format("{} {} tensorkv {}: {}", TimeText(), kLevels.at(static_cast<size_t>(of)),
                        who, Escaped(text)));
  };
  return options;
}

namespace {

// A variable of MXNet or ps-lite without effect here, and a hint at the replacement.
struct OtherVariable {
  std::string_view name, instead;
};
constexpr std::string_view kSums =
    "sums are added in one way, with the same bits on any number of threads";
constexpr std::string_view kAddresses = "processes use the address of their route to the head";
constexpr std::array<OtherVariable, 22> kVariablesOfMxnet = {{
    {"MXNET_KVSTORE_REDUCTION_NTHREADS", "TKV_THREADS says how many cores an operation may use"},
    {"MXNET_KVSTORE_BIGARRAY_BOUND", "large values are cut into chunks by their size"},
    {"MXNET_KVSTORE_SLICE_THRESHOLD", "large values are cut into chunks by their size"},
    {"MXNET_KVSTORE_SERIAL_PUSH", kSums},
    {"MXNET_KVSTORE_USETREE", kSums},
    {"MXNET_KVSTORE_LOGTREE", kSums},
    {"MXNET_KVSTORE_TREE_ARRAY_BOUND", kSums},
    {"MXNET_KVSTORE_TREE_BACKTRACK", kSums},
    {"MXNET_KVSTORE_TREE_LINK_USAGE_PENALTY", kSums},
    {"MXNET_CPU_PRIORITY_NTHREADS", "TKV_THREADS says how many cores an operation may use"},
    {"MXNET_UPDATE_AGGREGATION_SIZE", "a call takes any number of keys"},
    {"PS_VERBOSE", "TKV_LOG=info or TKV_LOG=debug tells what happens"},
    {"PS_RESEND", "what a lost connection had under way is sent again, and counts once"},
    {"PS_RESEND_TIMEOUT", "what a lost connection had under way is sent again, and counts once"},
    {"PS_DROP_MSG", "TKV_FAILPOINTS rehearses failures"},
    {"PS_HEARTBEAT_INTERVAL", "TKV_SILENCE_MS says after how long a silent process is dead"},
    {"PS_HEARTBEAT_TIMEOUT", "TKV_SILENCE_MS says after how long a silent process is dead"},
    {"DMLC_PS_VAN_TYPE", "TKV_TRANSPORT says how processes talk, and priorities always count"},
    {"DMLC_PS_WATER_MARK", "queues are bounded by themselves"},
    {"DMLC_LOCAL", "processes of one host use Unix sockets and shared memory by themselves"},
    {"DMLC_NODE_HOST", kAddresses},
    {"DMLC_INTERFACE", kAddresses},
}};

}  // namespace

std::vector<std::string> UnknownVariables() {
  // Variables besides those of options.  The prefixes TKV_TEST_ and TKV_FUZZ_ below belong to tests
  // and tools.
  constexpr std::array<std::string_view, 10> kOthers = {
      "TKV_ROLE",    "TKV_HEAD",       "TKV_JOB", "TKV_RANK",   "TKV_WORKERS",
      "TKV_SERVERS", "TKV_TOKEN_FILE", "TKV_SSH", "TKV_PYTHON", "TKV_RAY_JOB"};
  std::vector<std::string_view> known(kOthers.begin(), kOthers.end());
  for (const OptionInfo& option : OptionTable()) known.emplace_back(option.environment);
  std::vector<std::string> sentences;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry, std::strcspn(*entry, "="));
    const bool is_ours = variable.starts_with("TKV_") && !variable.starts_with("TKV_TEST_") &&
                         !variable.starts_with("TKV_FUZZ_");
    if (!is_ours || std::find(known.begin(), known.end(), variable) != known.end()) continue;
    sentences.push_back(
        Format("nothing reads the variable {}{}", variable, DidYouMean(variable, known)));
  }
  for (const auto& [name, instead] : kVariablesOfMxnet) {
    if (Variable(std::string(name).c_str()) == nullptr) continue;
    sentences.push_back(Format("the variable {} of MXNet has no effect: {}", name, instead));
  }
  return sentences;
}

std::string ConfigText() {
  const StoreOptions options = OptionsFromEnvironment();
  std::string text;
  const auto line = [&text](const char* name, const auto& value) {
    text += Format("{} = {}\n", name, value);
  };
  const std::string targets = Join(kernels::BuiltTargets(), " ");
  line("version", Version());
  line("instruction_set", kernels::ActiveTarget());
  line("instruction_sets_built", targets);
  line("cores", UsableCores());
  line("last_level_cache_bytes", LastLevelCacheBytes());
  line("gpu", GpuCount());
  line("large_operation_cores", options.threads == 0 ? ThreadsFor(0) : options.threads);
  for (const OptionInfo& option : OptionTable())
    line(option.name, OptionText(options, option.name));
  return text;
}

}  // namespace tkv
