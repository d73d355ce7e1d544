#include "job/process_job.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <pthread.h>

#include "base/duration.h"
#include "base/format.h"
#include "base/process.h"
#include "base/wait.h"
#include "bootstrap/pmix/pmix.h"
#include "job/start_notice.h"
#include "options/log_line.h"
#include "transport/address.h"

namespace tkv {

// ---- workers that host servers ----------------------------------------------------------------

void HostedServices::WaitUntilOver(std::chrono::milliseconds patience,
                                   const std::function<void()>& interrupt) {
  const auto deadline = DeadlineAfter(patience);
  for (const auto& service : services_) {
    const auto wait = [&](std::chrono::milliseconds longest) {
      try {
        return service->Wait(longest);
      } catch (const Error& error) {
        if (error.code() != Code::kUnavailable) throw;
        // The head and all processes that may need it have ended.
        return true;
      }
    };
    bool is_over = wait(std::chrono::milliseconds(0));
    if (!WaitUntil(
            nullptr, deadline, interrupt, [&] { return is_over; },
            [&](std::chrono::nanoseconds longest) {
              is_over = wait(std::chrono::ceil<std::chrono::milliseconds>(longest));
            })) {
      throw Fail(Code::kDeadlineExceeded,
                 "close: this process holds a part of the store, and other workers have not left "
                 "after {} ms",
                 patience.count());
    }
  }
}

namespace {

// The seat of this process in a job whose processes host the servers and the head.
struct Seat {
  int workers = 0;
  int servers = 0;
  int worker = -1;  // its rank; -1: no worker
  int server = -1;  // the server that it hosts; -1: none
  bool has_head = false;
  int worker_beside_head = -1;  // as in Job
  int server_beside_head = -1;
  int local_workers = 1;  // on this machine
};

// The channel by which the process with the head publishes the job's terms, and the others read
// them.
struct TermsExchange {
  std::function<void(const std::string&)> tell;
  std::function<std::string()> ask;
};

// Returns the terms as "id servers size address", directly followed by the token.  The size is that
// of the address, because addresses of user-defined transports and tokens may have spaces.
std::string TermsText(const Job& job) {
  return Format("{} {} {} {}{}", job.id, job.servers, job.head.size(), job.head, job.token);
}

constexpr const char* kNoTerms =
    "no description of a job that this version reads; install the same tensorkv in all processes";

// Reads the terms of a job.  Returns false if the text is no such description.
bool ReadTerms(const std::string& text, Job* job) {
  std::string_view rest = text;
  const auto word = [&rest] {
    const size_t length = std::min(rest.find(' '), rest.size());
    const std::string_view found = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    return found;
  };
  const auto number = [&](auto* value) {
    const std::string_view digits = word();
    const char* const begin = digits.data();
    const char* const end = begin + digits.size();
    const auto read = std::from_chars(begin, end, *value);
    return read.ec == std::errc() && read.ptr == end;
  };
  job->id = word();
  size_t size = 0;
  const bool is_one =
      !job->id.empty() && number(&job->servers) && number(&size) && size <= rest.size();
  job->head = is_one ? rest.substr(0, size) : "";
  job->token = is_one ? rest.substr(size) : "";
  return is_one;
}

// Throws if this process was started with other terms than the process with the head.
void CheckTerms(const Job& job, const Seat& seat, std::string_view own_token) {
  if (job.servers != seat.servers) {
    throw Fail(
        Code::kFailedPrecondition,
        "create: servers={} here, and {} in the process with the head; TKV_SERVERS (servers=) "
        "has to be the same in all processes",
        seat.servers, job.servers);
  }
  if (!own_token.empty() && own_token != job.token) {
    throw Fail(Code::kUnauthenticated,
               "create: TKV_TOKEN_FILE names another token here than in the process with the head; "
               "the same file is for all processes, or none is");
  }
}

// A handler that waits for the end of a handshake.
class Look final : public LinkHandler {
 public:
  uint64_t Accepted() override { return 2; }
  void Opened(uint64_t) override { is_open = true; }
  void Closed(uint64_t, const Error& reason) override { closed = reason.what(); }
  std::vector<Block> Land(uint64_t, std::span<const std::byte>, const std::byte*) override {
    throw Fail(Code::kInvalidArgument, "nothing has been asked");
  }
  void Received(uint64_t) override {}
  bool is_open = false;
  std::string closed;  // the reason
};

// Connects to the head of a job.  Returns "" if the head answers there and knows the job's token;
// otherwise the reason.
//   interrupt  called meanwhile; what it throws ends the wait
std::string WhyNoHead(const Job& job, const std::function<void()>& interrupt) {
  constexpr std::chrono::seconds kLongest{2};
  EndpointOptions options = EndpointOf(job, {}, {});
  options.arena = nullptr;
  const auto endpoint = TransportOf(job).Open(std::move(options));
  Look look;
  endpoint->Dial(1, job.head);
  const auto deadline = DeadlineAfter(kLongest);
  while (!look.is_open && look.closed.empty()) {
    if (std::chrono::steady_clock::now() >= deadline) return "nobody answers there";
    if (interrupt) interrupt();
    if (endpoint->Poll(&look, 1) == 0) endpoint->Wait(kSecond / 20);
  }
  return look.closed;
}

std::unique_ptr<Service> StartWith(const Job& job, const StoreOptions& options) {
  return StartService(job, options.log, options.server_patience, options.patience);
}

std::vector<std::unique_ptr<Service>> HostJob(const StoreOptions& options, const Seat& seat,
                                              const TermsExchange& terms, Job* job) {
  std::vector<std::unique_ptr<Service>> services;
  job->workers = seat.workers;
  job->servers = seat.servers;
  if (!options.on_death.empty()) job->on_death = options.on_death;
  static_cast<NetworkOptions&>(*job) = options;
  job->rank = seat.worker;
  job->worker_beside_head = seat.worker_beside_head;
  job->server_beside_head = seat.server_beside_head;
  const std::string own_token = TokenFromEnvironment();
  if (seat.has_head) {
    job->id = RandomHex(8);
    job->token = own_token.empty() ? NewToken() : own_token;
    Job head = *job;
    head.role = Job::Role::kHead;
    head.rank = -1;
    head.head = TransportOf(*job).HeadAddress(job->id);
    services.push_back(StartWith(head, options));
    job->head = services.back()->address();
    terms.tell(TermsText(*job));
  } else {
    const std::string text = terms.ask();
    if (!ReadTerms(text, job)) {
      throw Fail(Code::kInvalidArgument, "create: worker 0 gives {}", kNoTerms);
    }
    CheckTerms(*job, seat, own_token);
  }
  if (seat.server >= 0) {
    Job server = *job;
    server.role = Job::Role::kServer;
    server.rank = seat.server;
    server.is_in_worker = seat.worker >= 0;
    services.push_back(StartWith(server, options));
  }
  return services;
}

// Returns the options for a worker or an observer of the job.
WorkerOptions OptionsOf(const Job& job, const Service::Log& log) {
  WorkerOptions made;
  made.job = job.id;
  made.url = UrlOf(job);
  made.rank = job.rank;
  made.worker_beside_head = job.worker_beside_head;
  made.server_beside_head = job.server_beside_head;
  made.endpoint = OpenEndpoint(job, EndpointOf(job, {}, log));
  made.address_of = AddressesOf(job);
  return made;
}

std::shared_ptr<Worker> WorkerWithHost(const std::string& type, const StoreOptions& options,
                                       const Seat& seat, const TermsExchange& terms) {
  Job job;
  const auto host = std::make_shared<HostedServices>(HostJob(options, seat, terms, &job));
  WorkerOptions worker = OptionsOf(job, options.log);
  worker.host = host;
  worker.local_workers = seat.local_workers;
  worker.after_leave = [host = host.get(), patience = options.patience,
                        interrupt = options.interrupt] {
    host->WaitUntilOver(patience, interrupt);
  };
  return std::make_shared<Worker>(Format("create '{}'", type), options, std::move(worker));
}

int ServersAmong(const StoreOptions& options, int workers) {
  if (options.servers > workers) {
    throw Fail(Code::kInvalidArgument,
               "create: servers={}, and each of the {} workers can host one", options.servers,
               workers);
  }
  return options.servers > 0 ? options.servers : workers;
}

// The number of the next job.  All processes make their jobs in the same order, so the number
// serves as the job's name.
// By rendezvous, a failed attempt to join uses up no number: the next attempt publishes or reads
// the same key again.  In an MPI group, the number is used up once all processes have exchanged
// their roles.
class JobNumber {
 public:
  explicit JobNumber(int rank) : rank_(rank) {
    std::lock_guard lock(Mutex());
    value_ = Counts()[rank_];
  }
  int value() const { return value_; }
  void Used() const {
    std::lock_guard lock(Mutex());
    Counts()[rank_] = value_ + 1;
  }

 private:
  static std::mutex& Mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::map<int, int>& Counts() {
    // Threads of a test may act as processes.
    static std::map<int, int> counts;
    return counts;
  }
  const int rank_;
  int value_ = 0;
};

// ---- by PMIx

// Exchanges the values that the processes of the group have put, and logs from time to time that
// this waits.
void ExchangeIn(PmixGroup* group, const StoreOptions& options) {
  StartNotice notice("create", options.log);
  group->Exchange(options.patience, [&] {
    if (options.interrupt) options.interrupt();
    notice.Tell([&] {
      return Format(
          " for processes of the group of {} (those that one mpirun or srun has started): "
          "each has to create the store",
          group->size());
    });
  });
}

// Returns the seat of this process in the group, from the roles of all its processes.  Rank 0 of
// the group has the head.
Seat SeatIn(PmixGroup* group, bool is_server, int number, const StoreOptions& options) {
  const std::string key = Format("tkv.role.{}", number);
  const std::string here = Format(" {}", HostId());
  group->Put(key, (is_server ? "server" : "worker") + here);
  ExchangeIn(group, options);
  Seat seat;
  seat.local_workers = 0;
  for (int rank = 0; rank < group->size(); ++rank) {
    const std::string role = group->Get(rank, key);
    const bool serves = role.starts_with("server");
    const int index = serves ? seat.servers++ : seat.workers++;
    seat.local_workers += static_cast<int>(!serves && role.ends_with(here));
    if (rank == 0) (serves ? seat.server_beside_head : seat.worker_beside_head) = index;
    if (rank == group->rank()) (serves ? seat.server : seat.worker) = index;
  }
  if (seat.workers == 0) {
    throw Fail(Code::kInvalidArgument, "all {} processes of the group are servers", group->size());
  }
  if (seat.servers == 0) {
    seat.servers = ServersAmong(options, seat.workers);
    if (seat.worker < seat.servers) seat.server = seat.worker;
    seat.server_beside_head = 0;
  }
  seat.has_head = group->rank() == 0;
  return seat;
}

TermsExchange TermsIn(PmixGroup* group, int number, const StoreOptions& options) {
  const std::string key = Format("tkv.job.{}", number);
  return {[=](const std::string& text) {
            group->Put(key, text);
            ExchangeIn(group, options);
          },
          [=] {
            ExchangeIn(group, options);
            return group->Get(0, key);
          }};
}

// Returns the group, which is joined once in a process and left at its end, as the launcher
// expects.
PmixGroup* GroupOfProcess() {
  static const std::unique_ptr<PmixGroup> group = PmixGroup::Join();
  static const unsigned birth = ForkGeneration();
  if (birth != ForkGeneration()) {
    throw Fail(Code::kFailedPrecondition,
               "create: this process was forked from process {} of the group, whose tie to its "
               "launcher (mpirun, srun) it cannot use",
               group->rank());
  }
  return group.get();
}

// The services that a process of the group runs.
class GroupService final : public Service {
 public:
  explicit GroupService(std::vector<std::unique_ptr<Service>> services)
      : services_(std::move(services)) {}
  const std::string& address() const override { return services_.back()->address(); }
  bool Wait(std::chrono::milliseconds longest) override {
    // Each one is asked: the failure of one must not stay unseen while another one runs.
    bool have_ended = true;
    for (const auto& service : services_) {
      have_ended = service->Wait(longest / static_cast<int>(services_.size())) && have_ended;
    }
    return have_ended;
  }
  void Exited(Job::Role role, int index) override { services_.front()->Exited(role, index); }
  void Gone(Job::Role role, int index, bool has_failed) override {
    services_.front()->Gone(role, index, has_failed);
  }
  bool IsSilent(Job::Role role, int index) const override {
    return services_.front()->IsSilent(role, index);
  }
  bool IsOver() const override { return services_.front()->IsOver(); }
  bool HasLeft(Job::Role role, int index) const override {
    return services_.front()->HasLeft(role, index);
  }
  uint64_t LifeOf(Job::Role role, int index) const override {
    return services_.front()->LifeOf(role, index);
  }
  bool IsAnyWorkerAlive() const override { return services_.front()->IsAnyWorkerAlive(); }

 private:
  const std::vector<std::unique_ptr<Service>> services_;
};

}  // namespace

// Returns the terms that the process with the head has published.  An earlier start of the same job
// may have left terms of a head that has ended, or with another token.  Newer terms then follow
// soon.
static std::string AskRendezvous(const StoreOptions& options, const std::string& key) {
  // The longest wait in the store; then this process looks for interrupts and at the deadline.
  constexpr std::chrono::milliseconds kAskFor{1000};
  const auto deadline = DeadlineAfter(options.patience);
  Job job;
  static_cast<NetworkOptions&>(job) = options;
  for (StartNotice notice("create", options.log);;) {
    std::string why;
    try {
      const std::string text = options.rendezvous->Get(key, std::min(kAskFor, options.patience));
      // Perhaps the terms of another version, with its token; do not show them.
      why = kNoTerms;
      if (ReadTerms(text, &job)) {
        why = WhyNoHead(job, options.interrupt);
        if (why.empty()) return text;
        why = Format("{}, and there: {}", job.head, why);
      }
      why = Format("the shared store has at '{}': {}", key, why);
    } catch (const Error& error) {
      if (error.code() != Code::kDeadlineExceeded) throw;
      why = error.what();
    }
    const auto for_whom = [&] { return Format(" for the head, which worker 0 has; {}", why); };
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Fail(Code::kDeadlineExceeded, "create: waited {} ms{}", options.patience.count(),
                 for_whom());
    }
    notice.Tell(for_whom);
    if (options.interrupt) options.interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::shared_ptr<Worker> WorkerByRendezvous(const std::string& type, const StoreOptions& options) {
  if (options.num_workers < 1 || options.rank < 0 || options.rank >= options.num_workers) {
    throw Fail(Code::kInvalidArgument,
               "create '{}': rank={}, num_workers={}; a rank from 0 to num_workers - 1 is needed",
               type, options.rank, options.num_workers);
  }
  Seat seat;
  seat.workers = options.num_workers;
  seat.servers = ServersAmong(options, options.num_workers);
  seat.worker = options.rank;
  if (options.rank < seat.servers) seat.server = options.rank;
  seat.has_head = options.rank == 0;
  seat.worker_beside_head = seat.server_beside_head = 0;
  seat.local_workers = LocalWorkersFromEnvironment();
  const JobNumber number(options.rank);
  const std::string key = Format("tensorkv/{}/job", number.value());
  const TermsExchange terms{[&](const std::string& text) { options.rendezvous->Set(key, text); },
                            [&] { return AskRendezvous(options, key); }};
  auto worker = WorkerWithHost(type, options, seat, terms);
  number.Used();
  return worker;
}

std::shared_ptr<Worker> WorkerInGroup(const std::string& type, const StoreOptions& options) {
  PmixGroup* const group = GroupOfProcess();
  const JobNumber number(group->rank());
  const Seat seat = SeatIn(group, false, number.value(), options);
  number.Used();
  return WorkerWithHost(type, options, seat, TermsIn(group, number.value(), options));
}

std::unique_ptr<Service> Service::StartInGroup(const StoreOptions& given) {
  StoreOptions options = given;
  options.log = WithoutThrowing(given.log);
  PmixGroup* const group = GroupOfProcess();
  const JobNumber number(group->rank());
  const Seat seat = SeatIn(group, true, number.value(), options);
  number.Used();
  Job job;
  return std::make_unique<GroupService>(
      HostJob(options, seat, TermsIn(group, number.value(), options), &job));
}

std::unique_ptr<Service> Service::StartFromEnvironment(const StoreOptions& given) {
  if (!IsLaunched() && IsInGroup()) return StartInGroup(given);
  StoreOptions options = given;
  options.log = WithoutThrowing(given.log);
  const Job job = JobFromEnvironment(options.carrier);
  if (job.role == Job::Role::kWorker || job.role == Job::Role::kObserver) {
    throw Fail(Code::kFailedPrecondition,
               "serve: this process is {} of its job; TKV_ROLE or DMLC_ROLE would make it a server",
               job.role == Job::Role::kWorker ? "a worker" : "an observer");
  }
  // The host name of the head may appear later than its servers, as that of a pod does.
  for (StartNotice notice(Name(job.role), options.log);;) {
    try {
      return StartWith(job, options);
    } catch (const Error& error) {
      const bool may_come = error.code() == Code::kUnavailable && job.role == Job::Role::kServer;
      if (!may_come || notice.begun() + Saturated(options.patience) < StartNotice::Clock::now())
        throw;
      notice.Tell([&] { return Format(" for the head: {}", error.what()); });
    }
    if (options.interrupt) options.interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

// ---- workers ------------------------------------------------------------------------------------

namespace {

// The workers of this process, by job.  A process has one worker of a job, which all its stores
// share.
class OwnWorkers {
 public:
  struct Entry {
    std::weak_ptr<Worker> worker;
    // A thread joins, in the process that `birth` names.
    bool is_joining = false;
    unsigned birth = 0;
  };
  // A thread that forks holds the lock, so that the child also holds it and can release it.
  static OwnWorkers& Here() {
    static OwnWorkers* const here = [] {
      auto* const made = new OwnWorkers;
      // Registers its own handler now, instead of later under the lock.
      ForkGeneration();
      pthread_atfork([] { Here().mutex.lock(); }, [] { Here().mutex.unlock(); },
                     [] { Here().mutex.unlock(); });
      return made;
    }();
    return *here;
  }

  // Never held during a wait.
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Entry> of_jobs;
};

// A guard: while it lives, other threads wait for this one to join.
class Joining {
 public:
  Joining(OwnWorkers* workers, OwnWorkers::Entry* entry) : workers_(workers), entry_(entry) {
    entry->is_joining = true;
    entry->birth = ForkGeneration();
  }
  ~Joining() {
    std::lock_guard lock(workers_->mutex);
    entry_->is_joining = false;
    workers_->changed.notify_all();
  }
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

 private:
  OwnWorkers* const workers_;
  OwnWorkers::Entry* const entry_;
};

}  // namespace

std::shared_ptr<Worker> WorkerOfProcess(const std::string& type, const StoreOptions& options,
                                        Job job) {
  static_cast<NetworkOptions&>(job) = options;
  OwnWorkers& own = OwnWorkers::Here();
  std::unique_lock lock(own.mutex);
  OwnWorkers::Entry& entry = own.of_jobs[job.id];
  if (entry.is_joining && entry.birth != ForkGeneration()) {
    throw Fail(Code::kFailedPrecondition,
               "create '{}': this process was forked while its parent joined the job; a child has "
               "no store of its own",
               type);
  }
  if (!WaitUntil(&lock, &own.changed, DeadlineAfter(options.patience), options.interrupt,
                 [&] { return !entry.is_joining; })) {
    throw Fail(Code::kDeadlineExceeded,
               "create '{}': waited {} ms for another thread of this process, which joins the job",
               type, options.patience.count());
  }
  std::shared_ptr<Worker> worker = entry.worker.lock();
  if (worker != nullptr && !worker->is_of_this_process()) {
    [[maybe_unused]] auto* const kept = new std::shared_ptr<Worker>(worker);
    throw Fail(Code::kFailedPrecondition,
               "create '{}': this process was forked from worker {}, which is in the job; a child "
               "has no store of its own",
               type, worker->rank());
  }
  if (worker != nullptr && !worker->is_over()) return worker;
  const Joining joining(&own, &entry);
  lock.unlock();
  worker =
      std::make_shared<Worker>(Format("create '{}'", type), options, OptionsOf(job, options.log));
  lock.lock();
  entry.worker = worker;
  lock.unlock();
  return worker;
}

std::shared_ptr<Worker> ObserverOf(const StoreOptions& options, Job job, const std::string& doing) {
  // The role that the messages of its peers name.
  job.role = Job::Role::kObserver;
  WorkerOptions made = OptionsOf(job, options.log);
  made.role = Role::kObserver;
  made.rank = kNoRank;
  return std::make_shared<Worker>(doing, options, std::move(made));
}

}  // namespace tkv
