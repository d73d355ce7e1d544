// Jobs of several processes: who takes part, and the processes that serve the workers.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tkv/api.h"
#include "tkv/kvstore.h"

namespace tkv {

// What a process knows of its job.
struct Job : NetworkOptions {
  enum class Role { kWorker, kServer, kHead, kObserver };

  Role role = Role::kWorker;
  std::string id = "job";  // the same in all its processes
  int rank = -1;           // of a worker, index of a server; -1: any that is free
  int workers = 1;
  int servers = 1;
  // Where the head is found: "tcp:HOST:PORT", "unix:HOST/NAME", or several with commas.  For the
  // head itself: where it listens; empty: a Unix socket of a fresh name.
  std::string head;
  std::string token;  // its secret; empty: Unix sockets of one user only
  // What a round does without a worker that has died; the head decides: "fail", "continue", "wait".
  std::string on_death = "fail";
  // For the head: a launcher starts failed workers again, and reports by Gone those that do not return.
  // Servers serve on while all workers are dead and one may return.
  bool lives_return = false;
  // Who is in the process of the head, and ends with it; -1: none.
  int worker_beside_head = -1;
  int server_beside_head = -1;
  bool is_in_worker = false;  // a server in the process of a worker
};

// Reads what a launcher has left in the environment: TKV_* (tkv launch), or DMLC_*, the variables
// of MXNet's launcher.  The job's `carrier`, where there is one, says which addresses there are.
//   throws  kFailedPrecondition  there is no sign of a launcher; lists the ways to start
//           kInvalidArgument     a variable is missing or wrong
TKV_API Job JobFromEnvironment(std::shared_ptr<const Transport> carrier = nullptr);

// The job that these options name: that of `url`, with its token, or else the environment's.
//   throws  as JobOfUrl, TokenOfFile, JobFromEnvironment
TKV_API Job JobOf(const StoreOptions& options);

// "tkv://HOST:PORT/JOB", with several addresses of the head between commas: where others find the job.
// Of an address of another kind all but letters, digits and "-._~:[]" is written as %XX.
TKV_API std::string UrlOf(const Job& job);
//   throws  kInvalidArgument  it is none
TKV_API Job JobOfUrl(std::string_view url);

// Jobs whose heads listen at Unix sockets of this machine.
TKV_API std::vector<std::string> LocalJobs();
// The URL of the job that the environment names, or else of the only one of this machine.
//   throws  kNotFound (there is none), kInvalidArgument (there are several, which it lists)
TKV_API std::string FindJob();

// What in the environment says which job this process belongs to.
struct JobSign {
  enum class By { kTensorkv, kMxnet, kTorchrun, kPmix };
  By by;
  std::string text;  // its variables, for who reads them
};
// Those that can decide, the first of which does.  Of torchrun only Python knows more than this.
TKV_API std::vector<JobSign> JobSigns();

// Whether there is a sign of a launcher that JobFromEnvironment knows.
TKV_API bool IsLaunched();
// Whether an MPI launcher (mpirun, srun) has started this process: there is a sign of PMIx.
TKV_API bool IsInGroup();
// Whether this process is one of Slurm's that has no PMIx: a task of `srun` without --mpi=pmix, or a batch script.
TKV_API bool IsSlurmTask();

// How many workers torchrun has started on this machine (LOCAL_WORLD_SIZE); 1 where it has not.
//   throws  kInvalidArgument  the variable is no number
TKV_API int LocalWorkersFromEnvironment();

TKV_API const char* Name(Job::Role role) noexcept;

// The secret in the file that TKV_TOKEN_FILE names; "" where it names none.
//   throws  kInvalidArgument  no such file, others can read it, or it is too short
TKV_API std::string TokenFromEnvironment();

// The secret in a file; `named` begins the message of an error.
//   throws  kInvalidArgument  as TokenFromEnvironment
TKV_API std::string TokenOfFile(const std::string& path, std::string_view named = "token_file");

// Where the head of a new job is to be, so that processes of this and of other hosts reach it.
TKV_API std::string NewHeadAddress(const Job& job);

// A fresh secret for a job: 256 bits of the system's random numbers, in hexadecimal digits.
TKV_API std::string NewToken();

// A head or a server, on a thread of this process.
class TKV_API Service {
 public:
  using Log = std::function<void(int level, const std::string& text)>;

  //   throws  kAlreadyExists (the port is taken), kInvalidArgument
  static std::unique_ptr<Service> Start(
      const Job& job, Log log = {}, std::chrono::milliseconds patience = std::chrono::seconds(30));
  // A server, and in rank 0 the head, among the processes that an MPI launcher has started.
  //   throws  kDeadlineExceeded  not all of them have come
  static std::unique_ptr<Service> StartInGroup(const StoreOptions& options);
  // What the environment makes of this process: the server or head of a launched job, else a server
  // among the processes that an MPI launcher has started.
  //   throws  kFailedPrecondition  it makes a worker of it, or nothing; and as the others
  static std::unique_ptr<Service> StartFromEnvironment(const StoreOptions& options);
  virtual ~Service() = default;

  // Where others reach it.
  virtual const std::string& address() const = 0;
  // True when it is of no more use: every worker has left.
  //   blocks  at most so long
  //   throws  kUnavailable      a server whose head and workers have been gone for the patience
  //           kUnauthenticated  the head does not want it; kFailedPrecondition: another version
  //           kAborted          another process has taken its place
  virtual bool Wait(std::chrono::milliseconds longest) = 0;
  // A head is told that a process has ended, so that nobody waits for its silence.
  virtual void Exited(Job::Role role, int index) = 0;
  // A head is told that no later process takes the place of one that has ended, so that nobody waits
  // for one that has never joined, or for a next life.
  virtual void Gone(Job::Role role, int index, bool has_failed) = 0;
  // For a head: returns true if it has declared the newest life of a worker or server dead for its
  // silence, and Exited has not reported the end of the process.
  virtual bool IsSilent(Job::Role role, int index) const = 0;
  // For a head: returns true if every worker has left, or is dead without a next life.
  virtual bool IsOver() const = 0;
};

// Makes the stores that a snapshot has, with the numbers that they had, and puts back their keys,
// values and states.  Numbers without keys in the snapshot get empty stores, so that the others keep
// their numbers.  All workers of a job call it in their first incarnation, before they create a store.
//   blocks, throws  as KVStore::Create and KVStore::Restore
TKV_API std::vector<std::unique_ptr<KVStore>> RestoreStores(const std::string& path,
                                                            const StoreOptions& options);

// How often a key has been updated by its optimizer.
struct SavedUpdates {
  Key key;
  uint64_t updates = 0;
};
// Returns the counts of the keys that `store` would take from a snapshot, or from a file of states.
//   throws  kNotFound, kDataLoss  as KVStore::Load
TKV_API std::vector<SavedUpdates> UpdatesIn(const std::string& path, const KVStore& store);

}  // namespace tkv
