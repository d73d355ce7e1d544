// Jobs of several processes: their settings, and the processes that serve the workers.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tkv/api.h"
#include "tkv/kvstore.h"

namespace tkv {

// The settings of a process in its job.
struct Job : NetworkOptions {
  enum class Role { kWorker, kServer, kHead, kObserver };

  Role role = Role::kWorker;
  std::string id = "job";  // the same in all processes of the job
  int rank = -1;           // of a worker, or index of a server; -1: any that is free
  int workers = 1;
  int servers = 1;
  // The address of the coordinator (the head): "tcp:HOST:PORT", "unix:HOST/NAME", or several with
  // commas.  In the head itself: the address on which it listens; empty: a Unix socket with a fresh
  // name.
  std::string head;
  std::string token;  // the job's secret; empty: only Unix sockets of one user
  // A round without the push of a worker that has died fails ("fail"), completes without it
  // ("continue") or waits for its next incarnation ("wait").  The head's value counts.
  std::string on_death = "fail";
  // For the head: true if a launcher restarts failed workers, and reports by Gone those that do not
  // return.  While all workers are dead and one may return, servers keep serving.
  bool lives_return = false;
  // The worker and the server that run in the head's process and end with it; -1: none.
  int worker_beside_head = -1;
  int server_beside_head = -1;
  bool is_in_worker = false;  // of a server: it runs in a worker's process
};

// Reads the settings that a launcher left in the environment: TKV_* (tkv launch), or DMLC_* (the
// variables of MXNet's launcher).  If there is a `carrier`, it decides which addresses are valid.
//   throws  kFailedPrecondition  there is no sign of a launcher; lists the ways to start
//           kInvalidArgument     a variable is missing or wrong
TKV_API Job JobFromEnvironment(std::shared_ptr<const Transport> carrier = nullptr);

// Returns the job that these options name: the one of `url`, with its token, or else the
// environment's.
//   throws  as JobOfUrl, TokenOfFile, JobFromEnvironment
TKV_API Job JobOf(const StoreOptions& options);

// Returns the URL by which other processes find the job: "tkv://HOST:PORT/JOB", with commas between
// several addresses of the head; "" if the job has no address.  Characters of addresses and names
// other than letters, digits and "-._~:[]" become %XX.
TKV_API std::string UrlOf(const Job& job);
// Returns the job that a URL names.
//   throws  kInvalidArgument  not the URL of a job
TKV_API Job JobOfUrl(std::string_view url);

// A job whose head listens on a Unix socket of this machine, as that of `tkv launch` does.
struct LocalJob {
  std::string id;
  std::string url;
  int head_pid = 0;  // the process of the head; 0: it is in another PID namespace
};
// Returns the jobs of this user.
TKV_API std::vector<LocalJob> LocalJobs();
// Returns the URL of a job of this user on this machine.
//   name    its id, or the beginning of it; empty: the job that the environment names, else the
//           only one of this machine
//   throws  kNotFound (there is none), kInvalidArgument (there are several); both list jobs
TKV_API std::string FindJob(std::string_view name = {});

// A sign in the environment that this process belongs to a job.
struct JobSign {
  enum class By { kTensorkv, kMxnet, kTorchrun, kPmix };
  By by;
  std::string text;  // the launcher and its variables, for messages
};
// Returns the signs that are present.  The first one decides.  The presence of torchrun is all that
// C++ knows about it; only the Python package joins its jobs.
TKV_API std::vector<JobSign> JobSigns();

// Returns true if a launcher that JobFromEnvironment knows has started this process.
TKV_API bool IsLaunched();
// Returns true if an MPI launcher (mpirun, srun) has started this process: PMIx's variables are
// set.
TKV_API bool IsInGroup();
// Returns true if this process is a Slurm process without PMIx: a task of `srun` without
// --mpi=pmix, or a batch script.
TKV_API bool IsSlurmTask();

// Returns how many workers torchrun has started on this machine (LOCAL_WORLD_SIZE); 1 if the
// variable is not set.
//   throws  kInvalidArgument  the variable is no number
TKV_API int LocalWorkersFromEnvironment();

TKV_API const char* Name(Job::Role role) noexcept;

// Returns the secret in the file that TKV_TOKEN_FILE names; "" if the variable is not set.
//   throws  kInvalidArgument  no such file, others can read it, or it is too short
TKV_API std::string TokenFromEnvironment();

// Returns the secret in a file; `named` begins the message of an error.
//   throws  kInvalidArgument  as TokenFromEnvironment
TKV_API std::string TokenOfFile(const std::string& path, std::string_view named = "token_file");

// Returns an address for the head of a new job that processes of this and of other hosts can reach.
//   job  its id and its network options count
TKV_API std::string NewHeadAddress(const Job& job);

// Returns a fresh secret for a job: 256 random bits from the system, in hexadecimal digits.
TKV_API std::string NewToken();

// A head or a server that runs on a thread of this process.
class TKV_API Service {
 public:
  using Log = std::function<void(int level, const std::string& text)>;

  // Starts the head or the server that `job` describes.
  //   log       receives levels from 0 (debug) to 3 (error), from any thread
  //   patience  the time after which Wait ends without a head, or without a living worker
  //   throws    kAlreadyExists (the port is taken), kInvalidArgument
  static std::unique_ptr<Service> Start(
      const Job& job, Log log = {}, std::chrono::milliseconds patience = std::chrono::seconds(30));
  // Starts a server, and in rank 0 the head, among the processes that an MPI launcher has started.
  //   throws  kDeadlineExceeded  not all of them have joined
  static std::unique_ptr<Service> StartInGroup(const StoreOptions& options);
  // Starts the service that the environment asks for: the server or head of a launched job.  Else
  // starts a server among the processes that an MPI launcher has started.
  //   throws  kFailedPrecondition  the environment asks for a worker, or for nothing
  //           and as the others
  static std::unique_ptr<Service> StartFromEnvironment(const StoreOptions& options);
  virtual ~Service() = default;

  // The address on which it listens.
  virtual const std::string& address() const = 0;
  // Waits for the end of the job.  Returns true if the service can stop: every worker has left, or
  // all remaining ones are dead and none has returned for the patience.  If dead workers may
  // return, 20 times the patience counts.
  //   blocks  at most `longest`
  //   throws  kUnavailable         a server whose head and workers have been gone for that time, or
  //                                that has not found the head within StoreOptions::patience
  //           kUnauthenticated     the head rejects it
  //           kFailedPrecondition  the head has another version
  //           kAborted             another process has taken its place
  virtual bool Wait(std::chrono::milliseconds longest) = 0;
  // For a head: reports that a process has ended, so that the head declares it dead at once instead
  // of after its silence.
  virtual void Exited(Job::Role role, int index) = 0;
  // For a head: reports that an ended process will not be replaced.  Then nobody waits for a
  // process that has never joined, or for its next incarnation.
  virtual void Gone(Job::Role role, int index, bool has_failed) = 0;
  // For a head: returns true if the head has declared the newest incarnation of a worker or server
  // dead for its silence.  False if Exited has reported the end of the process.
  virtual bool IsSilent(Job::Role role, int index) const = 0;
  // For a head: returns true if every worker has left, or is dead and will not be replaced.
  virtual bool IsOver() const = 0;
  // For a head: returns true if the newest incarnation of a worker or server has left, so that
  // nobody waits for it.
  virtual bool HasLeft(Job::Role role, int index) const = 0;
  // For a head: returns the number of the newest incarnation of a worker or server; 0 if none has
  // joined.  Later incarnations have higher numbers.
  virtual uint64_t LifeOf(Job::Role role, int index) const = 0;
  // For a head: returns true if a worker takes part now, also one that no launcher has started.
  virtual bool IsAnyWorkerAlive() const = 0;
};

// Creates the stores that have keys at `path`, with their numbers, and restores their keys, values
// and states.  In a folder of snapshots each store takes the newest snapshot that has it.  Numbers
// without keys there get empty stores, so that the others keep their numbers.  All workers of a job
// call it in their first incarnation, before they create a store.  The call returns when all have
// restored.  KVStore::rejoined is true in their next incarnations.
//   blocks, throws  as KVStore::Create and KVStore::Restore
TKV_API std::vector<std::unique_ptr<KVStore>> RestoreStores(const std::string& path,
                                                            const StoreOptions& options);
// Returns the numbers of the stores whose keys a snapshot has; of a folder, its newest snapshot.
//   throws  kNotFound, kDataLoss, kFailedPrecondition  as KVStore::Load
TKV_API std::set<uint32_t> StoresIn(const std::string& path);
// Waits until this incarnation of a worker takes part no more: another process has taken its rank,
// or the head says that it is dead or has left.
//   blocks  until then; without the head at most the patience
TKV_API void AwaitEndOfLife(const KVStore& store);

// The number of updates of a key by its optimizer.
struct SavedUpdates {
  Key key;
  uint64_t updates = 0;
};
// Returns the update counts of the keys that `store` would take from a snapshot, or from a file of
// states.
//   throws  kNotFound, kDataLoss  as KVStore::Load
TKV_API std::vector<SavedUpdates> UpdatesIn(const std::string& path, const KVStore& store);

}  // namespace tkv
