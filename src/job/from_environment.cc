// Jobs of processes that launchers have started: their variables, and secrets in files.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "base/process.h"
#include "options/environment.h"
#include "tkv/config.h"
#include "tkv/job.h"
#include "transport/address.h"
#include "transport/factory.h"
#include "wire/message.h"

namespace tkv {
namespace {

constexpr int kServersHigh = static_cast<int>(kServersMax);
constexpr int kPortMax = 65'535;

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
  job.rank = NumberVariable("TKV_RANK", -1, 0, std::max(kWorkersMax, kServersHigh) - 1);
  if (job.role == Job::Role::kHead) {
    job.workers = NeedNumberVariable("TKV_WORKERS", 1, kWorkersMax);
    job.servers = NeedNumberVariable("TKV_SERVERS", 1, kServersHigh);
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
  const int port = NeedNumberVariable("DMLC_PS_ROOT_PORT", 1, kPortMax);
  job.workers = NeedNumberVariable("DMLC_NUM_WORKER", 1, kWorkersMax);
  job.servers = NeedNumberVariable("DMLC_NUM_SERVER", 1, kServersHigh);
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
    throw Fail(Code::kInvalidArgument, "token and token_file: one of them says the secret");
  }
  job.token = !options.token.empty()        ? options.token
              : !options.token_file.empty() ? TokenOfFile(options.token_file)
                                            : TokenFromEnvironment();
  return job;
}

int LocalWorkersFromEnvironment() { return NumberVariable("LOCAL_WORLD_SIZE", 1, 1, kWorkersMax); }

}  // namespace tkv
