// The only place that reads the environment.

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/format.h"
#include "base/nearest.h"
#include "base/process.h"
#include "kernels/targets.h"
#include "tkv/config.h"
#include "tkv/job.h"
#include "transport/socket/address.h"
#include "update/parallel.h"

namespace tkv {
namespace {

constexpr std::array<OptionInfo, 13> kOptions = {{
    {"threads", "TKV_THREADS", "cores", "0",
     "Cores that one large operation may use; 0 means all that the process may use: its CPU "
     "affinity, cut to the quota of its control group, and divided by the workers of its job on "
     "this machine."},
    {"patience_ms", "TKV_PATIENCE_MS", "ms", "600000",
     "Longest wait of an operation for another thread of the same process, or for other workers, "
     "before it fails with DeadlineExceeded."},
    {"server_patience_ms", "TKV_SERVER_PATIENCE_MS", "ms", "30000",
     "Longest wait of a distributed store for a server or the head before what needs it fails with "
     "Unavailable."},
    {"servers", "TKV_SERVERS", "servers", "0",
     "Servers of a job whose workers host them; 0 means one in each worker, and one in a job of "
     "one "
     "(bootstrap='self')."},
    {"staleness", "TKV_STALENESS", "rounds", "0",
     "Rounds that a worker may be ahead of the slowest one; 0 makes every pull exact."},
    {"on_death", "TKV_ON_DEATH", "", "fail",
     "What a round does without a worker that has died: fail, continue, wait."},
    {"deterministic", "TKV_DETERMINISTIC", "", "0",
     "1: sums are added in the order of ranks, so that every run gives the same bits."},
    {"window_bytes", "TKV_WINDOW_BYTES", "bytes", "67108864",
     "Arrays of other frameworks that a push copies where it cannot leave at once; beyond it the "
     "call waits."},
    {"transport", "TKV_TRANSPORT", "", "auto",
     "How the processes of a job talk. auto: by shared memory and Unix sockets on one host, by TCP "
     "between hosts; unix: the same without shared memory; tcp: by TCP alone."},
    {"insecure_network", "TKV_INSECURE_NETWORK", "", "0",
     "1: TCP without a token; whoever reaches a port takes part in the job."},
    {"check_values", "TKV_CHECK_VALUES", "", "0",
     "1: what leaves by TCP carries a check of its values too (XXH3, as that of the headers); what "
     "does not match is sent again over a new connection."},
    {"failpoints", "TKV_FAILPOINTS", "", "",
     "Rehearsed failures: WHO:sent|received:TYPE:COUNT:kill|stop|cut, several with commas."},
    {"log", "TKV_LOG", "", "off",
     "What is told on standard error of joining, leaving, deaths and long waits: off, error, "
     "warning, info, debug. From Python it is the level of the logger tensorkv."},
}};

int64_t ReadNumber(const char* variable, int64_t fallback, int64_t low) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return fallback;
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < low) {
    throw Fail(Code::kInvalidArgument, "{}='{}': a whole number of at least {} is needed", variable,
               text, low);
  }
  return value;
}

constexpr std::array<const char*, 4> kLevels = {"debug", "info", "warning", "error"};

// The lowest level that is told; kLevels.size() where nothing is.
size_t ReadLevel() {
  const char* const text = std::getenv("TKV_LOG");
  if (text == nullptr || *text == '\0' || std::string_view(text) == "off") return kLevels.size();
  for (size_t i = 0; i < kLevels.size(); ++i) {
    if (std::string_view(text) == kLevels[i]) return i;
  }
  throw Fail(Code::kInvalidArgument, "TKV_LOG='{}'; there are off, error, warning, info and debug",
             text);
}

const char* Variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

std::string NeedVariable(const char* name) {
  if (const char* const text = Variable(name)) return text;
  throw Fail(Code::kInvalidArgument, "{} is not set, and the job needs it", name);
}

int NeedNumber(const char* name, int low) {
  NeedVariable(name);
  return static_cast<int>(ReadNumber(name, 0, low));
}

Job TkvJob() {
  Job job;
  const char* const role = Variable("TKV_ROLE");
  const std::string name = role == nullptr ? "worker" : role;
  if (name == "server") {
    job.role = Job::Role::kServer;
  } else if (name == "head") {
    job.role = Job::Role::kHead;
  } else if (name != "worker") {
    throw Fail(Code::kInvalidArgument, "TKV_ROLE='{}'; there are worker, server and head", name);
  }
  if (const char* const id = Variable("TKV_JOB")) job.id = id;
  job.rank = static_cast<int>(ReadNumber("TKV_RANK", -1, 0));
  if (job.role == Job::Role::kHead) {
    job.workers = NeedNumber("TKV_WORKERS", 1);
    job.servers = NeedNumber("TKV_SERVERS", 1);
    if (const char* const head = Variable("TKV_HEAD")) job.head = head;
  } else {
    job.head = NeedVariable("TKV_HEAD");
  }
  return job;
}

// The variables of MXNet's launcher and of ps-lite.
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
  const int port = NeedNumber("DMLC_PS_ROOT_PORT", 1);
  job.workers = NeedNumber("DMLC_NUM_WORKER", 1);
  job.servers = NeedNumber("DMLC_NUM_SERVER", 1);
  job.id = Format("dmlc-{}-{}", host, port);
  // Where all are on one host no token is needed: a Unix socket whose name all of them know.
  job.head = Format("unix:{}/tkv-{}-{},tcp:{}:{}", HostId(), geteuid(), job.id, host, port);
  return job;
}

}  // namespace

bool IsLaunched() {
  return Variable("TKV_HEAD") != nullptr || Variable("TKV_ROLE") != nullptr ||
         Variable("DMLC_ROLE") != nullptr;
}

bool IsInGroup() {
  return Variable("PMIX_RANK") != nullptr && Variable("PMIX_NAMESPACE") != nullptr;
}

Job JobFromEnvironment() {
  if (!IsLaunched()) {
    throw Fail(Code::kFailedPrecondition,
               "nothing says who else takes part in the job.  Ways to start: `mpirun`, `torchrun` "
               "or `tkv launch -n WORKERS "
               "-s SERVERS COMMAND`; the variables of MXNet's launcher (DMLC_ROLE, "
               "DMLC_PS_ROOT_URI, ...); bootstrap='self' makes a job of this worker alone; "
               "tensorkv.testing.cluster() makes one among threads");
  }
  Job job =
      Variable("TKV_HEAD") != nullptr || Variable("TKV_ROLE") != nullptr ? TkvJob() : DmlcJob();
  job.token = TokenFromEnvironment();
  const StoreOptions options = OptionsFromEnvironment();
  static_cast<NetworkOptions&>(job) = options;
  job.on_death = options.on_death;
  return job;
}

std::string TokenFromEnvironment() {
  const char* const path = Variable("TKV_TOKEN_FILE");
  if (path == nullptr) return {};
  struct stat status{};
  if (stat(path, &status) != 0 || access(path, R_OK) != 0) {
    throw Fail(Code::kInvalidArgument, "TKV_TOKEN_FILE='{}': {}", path, std::strerror(errno));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Fail(Code::kInvalidArgument, "TKV_TOKEN_FILE='{}': others can read it; chmod 600 it",
               path);
  }
  constexpr size_t kTokenBytesMax = 4096;
  std::string token = StartOf(path, kTokenBytesMax);
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back()))) token.pop_back();
  constexpr size_t kTokenBytesMin = 16;
  if (token.size() < kTokenBytesMin) {
    throw Fail(Code::kInvalidArgument, "TKV_TOKEN_FILE='{}': {} bytes, at least {} are needed",
               path, token.size(), kTokenBytesMin);
  }
  return token;
}

std::string DidYouMean(std::string_view word, std::span<const std::string_view> names) {
  const std::string_view nearest = Nearest(word, names);
  return nearest.empty() ? std::string() : Format("; did you mean '{}'?", nearest);
}

const char* Version() noexcept { return TKV_VERSION; }

int LocalWorkersFromEnvironment() { return static_cast<int>(ReadNumber("LOCAL_WORLD_SIZE", 1, 1)); }

int Cores() { return UsableCores(); }

std::span<const OptionInfo> OptionTable() noexcept { return kOptions; }

StoreOptions OptionsFromEnvironment() {
  StoreOptions options;
  options.threads = static_cast<int>(ReadNumber("TKV_THREADS", options.threads, 0));
  options.patience =
      std::chrono::milliseconds(ReadNumber("TKV_PATIENCE_MS", options.patience.count(), 1));
  options.server_patience = std::chrono::milliseconds(
      ReadNumber("TKV_SERVER_PATIENCE_MS", options.server_patience.count(), 1));
  options.servers = static_cast<int>(ReadNumber("TKV_SERVERS", options.servers, 0));
  options.staleness = static_cast<int>(ReadNumber("TKV_STALENESS", options.staleness, 0));
  const char* const on_death = std::getenv("TKV_ON_DEATH");
  if (on_death != nullptr && *on_death != '\0') options.on_death = on_death;
  options.deterministic = ReadNumber("TKV_DETERMINISTIC", 0, 0) != 0;
  options.window_bytes = static_cast<size_t>(
      ReadNumber("TKV_WINDOW_BYTES", static_cast<int64_t>(options.window_bytes), 0));
  if (const char* const transport = Variable("TKV_TRANSPORT")) options.transport = transport;
  options.insecure_network = ReadNumber("TKV_INSECURE_NETWORK", 0, 0) != 0;
  options.check_values = ReadNumber("TKV_CHECK_VALUES", 0, 0) != 0;
  if (const char* const points = Variable("TKV_FAILPOINTS")) options.failpoints = points;
  if (const size_t level = ReadLevel(); level < kLevels.size()) {
    options.log = [level](int of, const std::string& text) {
      const auto at = static_cast<size_t>(of);
      if (at >= level) std::fprintf(stderr, "tensorkv %s: %s\n", kLevels.at(at), text.c_str());
    };
  }
  return options;
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
  line("gpu", "not built");
  line("threads",
       Format("{} ({})", options.threads, options.threads == 0 ? ThreadsFor(0) : options.threads));
  line("patience_ms", options.patience.count());
  line("server_patience_ms", options.server_patience.count());
  line("servers", options.servers);
  line("staleness", options.staleness);
  line("on_death", options.on_death);
  line("deterministic", options.deterministic ? 1 : 0);
  line("window_bytes", options.window_bytes);
  line("transport", options.transport);
  line("insecure_network", options.insecure_network ? 1 : 0);
  line("check_values", options.check_values ? 1 : 0);
  line("failpoints", options.failpoints);
  line("log", ReadLevel() < kLevels.size() ? kLevels.at(ReadLevel()) : "off");
  return text;
}

}  // namespace tkv
