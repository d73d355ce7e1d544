#include "runtime/process_job.h"

#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/process.h"
#include "bootstrap/pmix/pmix.h"
#include "runtime/cluster.h"
#include "transport/socket/address.h"

namespace tkv {
namespace {

std::string WhoIs(const Job& job) {
  return job.rank < 0 ? Name(job.role) : format("{} {}", Name(job.role), job.rank);
}

// The address where a peer of the job is that no EPOCH names: the head's.
std::function<std::string(const Peer&)> AddressesOf(const Job& job) {
  return [head = job.head](const Peer&) { return head; };
}

}  // namespace

const char* Name(Job::Role role) noexcept {
  switch (role) {
    case Job::Role::kWorker:
      return "worker";
    case Job::Role::kServer:
      return "server";
    case Job::Role::kHead:
      return "head";
  }
  return "?";
}

std::vector<std::string> ListenAddresses(const Job& job) {
  std::vector<std::string> listen;
  if (job.role != Job::Role::kHead) listen.emplace_back("unix");
  if (job.role == Job::Role::kHead && job.head.empty()) listen.emplace_back("unix");
  if (job.head.empty()) return listen;
  const bool may_use_tcp = !job.token.empty() || job.insecure_network;
  for (const SocketAddress& address : ParseAddresses(job.head)) {
    if (address.kind == SocketAddress::Kind::kUnix) {
      if (job.role == Job::Role::kHead) listen.push_back("unix:" + address.name);
    } else if (job.role == Job::Role::kHead) {
      // A head that has a Unix socket as well may do without TCP.
      if (may_use_tcp || listen.empty()) listen.push_back(ToString(address));
    } else if (may_use_tcp) {
      listen.push_back(
          ToString({SocketAddress::Kind::kTcp, LocalAddressTowards(address.host), "", 0}));
    }
  }
  return listen;
}

SocketOptions SocketsOf(const Job& job, std::vector<std::string> listen) {
  SocketOptions options;
  options.who = WhoIs(job);
  options.listen = std::move(listen);
  options.token = job.token;
  options.insecure_network = job.insecure_network;
  return options;
}

// ---- services -----------------------------------------------------------------------------------

namespace {

class SocketService final : public Service {
 public:
  SocketService(const Job& job, Log log, std::chrono::milliseconds patience)
      : role_(job.role), patience_(patience) {
    if (job.workers < 1 || job.workers > kWorkersMax || job.servers < 1 ||
        job.servers > static_cast<int>(kServersMax)) {
      throw Fail(Code::kInvalidArgument, "{}: {} workers and {} servers; at least one of each",
                 WhoIs(job), job.workers, job.servers);
    }
    auto endpoint = OpenSockets(SocketsOf(job, ListenAddresses(job)));
    address_ = endpoint->address();
    NodeThreadOptions thread;
    thread.address_of = AddressesOf(job);
    thread.log = std::move(log);
    thread_ = std::make_unique<NodeThread>(MakeNode(job), std::move(endpoint), std::move(thread));
    thread_->OnChange([this](Node& node) { OnChange(&node); });
    thread_->Start();
  }
  ~SocketService() override { thread_->Stop(); }

  const std::string& address() const override { return address_; }

  bool Wait(std::chrono::milliseconds longest) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, longest, [&] { return over_ || refused_; });
    if (refused_) throw Error(*refused_);
    if (over_) return true;
    if (idle_since_ == kNever) return false;
    const Time idle = NodeThread::Now() - idle_since_;
    if (idle < std::chrono::nanoseconds(patience_).count()) return false;
    if (!head_is_lost_) return true;  // the last workers are dead, and nobody has come back
    throw Fail(Code::kUnavailable, "the head and all workers have been gone for {:.0f} s",
               static_cast<double>(idle) / kSecond);
  }

  void Exited(Job::Role role, int index) override {
    if (role_ != Job::Role::kHead) {
      throw Fail(Code::kInvalidArgument, "a {} does not judge who is dead", Name(role_));
    }
    if (role == Job::Role::kHead) return;
    const Role of = role == Job::Role::kServer ? Role::kServer : Role::kWorker;
    thread_->Run([&](Node& node, Time) {
      auto& head = static_cast<HeadNode&>(node);
      const Epoch& epoch = head.head().epoch();
      const auto& members = of == Role::kServer ? epoch.servers : epoch.workers;
      if (index < 0 || static_cast<size_t>(index) >= members.size()) return;
      head.Exited(of, index, members[static_cast<size_t>(index)].incarnation);
    });
  }

 private:
  std::unique_ptr<Node> MakeNode(const Job& job) {
    if (role_ == Job::Role::kHead) {
      HeadOptions head;
      head.job = job.id;
      head.workers = job.workers;
      head.servers = job.servers;
      head.policy = PolicyFromName(job.on_death);
      return std::make_unique<HeadNode>(head, &pool_, NodeThread::Now());
    }
    MemberOptions member;
    member.job = job.id;
    member.role = Role::kServer;
    member.rank = job.rank;
    member.process = LifeNumber();
    member.address = address_;
    ShardOptions shard;
    shard.job = job.id;
    return std::make_unique<ServerNode>(member, shard, &pool_);
  }

  // Runs under the node's lock.
  void OnChange(Node* node) {
    const bool is_head = role_ == Job::Role::kHead;
    const Epoch& epoch = is_head ? static_cast<HeadNode*>(node)->head().epoch()
                                 : static_cast<ServerNode*>(node)->member().epoch();
    const auto count = [](const auto& members, Epoch::State state) {
      return std::count_if(members.begin(), members.end(),
                           [&](const auto& member) { return member.state == state; });
    };
    const auto left = count(epoch.workers, Epoch::State::kLeft);
    const auto dead = count(epoch.workers, Epoch::State::kDead);
    const auto all = static_cast<ptrdiff_t>(epoch.workers.size());
    // Where nobody waits for the next life of the dead there is none.
    const bool are_gone = left + dead == all && epoch.policy != Epoch::Policy::kWait;
    bool is_over = all > 0 && (left == all || are_gone);
    bool is_idle = all > 0 && left + dead == all;
    bool head_is_lost = false;
    const std::optional<Error>* refused = nullptr;
    if (is_head) {
      // Servers say when they are done; one that says nothing more is not awaited for ever.
      is_idle = is_idle || is_over;
      is_over = is_over && count(epoch.servers, Epoch::State::kAlive) == 0;
    } else {
      auto* const server = static_cast<ServerNode*>(node);
      refused = &server->member().refused();
      head_is_lost = server->member().joined() && server->member().link() == kNoLink;
      is_idle = is_idle || (head_is_lost && !server->shard().has_clients());
      if (is_over && !has_left_) {
        has_left_ = true;
        server->Leave();
      }
      is_over = is_over && (server->has_left() || head_is_lost);
    }
    std::lock_guard lock(mutex_);
    head_is_lost_ = head_is_lost;
    idle_since_ = !is_idle ? kNever : std::min(idle_since_, NodeThread::Now());
    over_ = is_over;
    if (refused != nullptr && *refused && !has_left_ && !refused_) refused_ = *refused;
    if (over_ || refused_) changed_.notify_all();
  }

  const Job::Role role_;
  const std::chrono::milliseconds patience_;
  BufferPool pool_;
  std::string address_;
  bool has_left_ = false;  // its GOODBYE has been sent; under the node's lock
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  bool head_is_lost_ = false;
  Time idle_since_ = kNever;
  std::optional<Error> refused_;
  std::unique_ptr<NodeThread> thread_;
};

}  // namespace

std::unique_ptr<Service> Service::Start(const Job& job, Log log,
                                        std::chrono::milliseconds patience) {
  if (job.role == Job::Role::kWorker) {
    throw Fail(Code::kInvalidArgument, "a worker is no service; it creates a store");
  }
  return std::make_unique<SocketService>(job, std::move(log), patience);
}

// ---- workers that host servers ----------------------------------------------------------------

void Host::WaitUntilOver(std::chrono::milliseconds patience,
                         const std::function<void()>& interrupt) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const auto& service : services_) {
    while (!service->Wait(kInterruptEvery)) {
      if (interrupt) interrupt();
      if (std::chrono::steady_clock::now() >= deadline) {
        throw Fail(Code::kDeadlineExceeded,
                   "close: this process holds a part of the store, and other workers have not left "
                   "after {} ms",
                   patience.count());
      }
    }
  }
}

namespace {

// The address of this machine that faces the others, as far as it can know: that of its default
// route.
std::string OwnAddress() {
  try {
    return LocalAddressTowards("192.0.2.1");  // of no machine; nothing is sent (RFC 5737)
  } catch (const Error&) {
    return "127.0.0.1";
  }
}

// What this process is in a job whose processes host the servers and the head.
struct Place {
  int workers = 0;
  int servers = 0;
  int worker = -1;  // its rank; -1: it is none
  int server = -1;  // which one it hosts; -1: none
  bool has_head = false;
};

// How the process with the head tells the others what they need to know.
struct Notice {
  std::function<void(const std::string&)> tell;
  std::function<std::string()> ask;
};

std::vector<std::unique_ptr<Service>> HostJob(const StoreOptions& options, const Place& place,
                                              const Notice& notice, Job* job) {
  std::vector<std::unique_ptr<Service>> services;
  job->workers = place.workers;
  job->servers = place.servers;
  job->on_death = options.on_death;
  job->rank = place.worker;
  if (place.has_head) {
    job->id = RandomHex(8);
    job->token = RandomHex(32);
    Job head = *job;
    head.role = Job::Role::kHead;
    head.rank = -1;
    head.head = format("unix:{}/tkv-{}-head,tcp:{}:0", HostId(), job->id, OwnAddress());
    services.push_back(Service::Start(head, options.log, options.server_patience));
    job->head = services.back()->address();
    notice.tell(format("{} {} {}", job->id, job->head, job->token));
  } else {
    const std::string text = notice.ask();
    const size_t first = text.find(' ');
    const size_t second = text.find(' ', first + 1);
    if (second == std::string::npos) {
      throw Fail(Code::kInvalidArgument, "create: '{}' is no description of a job", text);
    }
    job->id = text.substr(0, first);
    job->head = text.substr(first + 1, second - first - 1);
    job->token = text.substr(second + 1);
  }
  if (place.server >= 0) {
    Job server = *job;
    server.role = Job::Role::kServer;
    server.rank = place.server;
    services.push_back(Service::Start(server, options.log, options.server_patience));
  }
  return services;
}

std::shared_ptr<Worker> WorkerWithHost(const std::string& type, const StoreOptions& options,
                                       const Place& place, const Notice& notice) {
  Job job;
  const auto host = std::make_shared<Host>(HostJob(options, place, notice, &job));
  WorkerOptions worker;
  worker.job = job.id;
  worker.rank = place.worker;
  worker.endpoint = OpenSockets(SocketsOf(job, {}));
  worker.address_of = AddressesOf(job);
  worker.host = host;
  worker.after_leave = [host = host.get(), patience = options.patience,
                        interrupt = options.interrupt] {
    host->WaitUntilOver(patience, interrupt);
  };
  return std::make_shared<Worker>(type, options, std::move(worker));
}

int ServersAmong(const StoreOptions& options, int workers) {
  return options.servers > 0 ? std::min(options.servers, workers) : workers;
}

// All processes make their jobs in the same order, so the number of a job is its name.
int NextJob(int rank) {
  static std::mutex mutex;
  static std::map<int, int> counts;  // threads of a test may stand for processes
  std::lock_guard lock(mutex);
  return counts[rank]++;
}

// ---- by PMIx

// What all processes of the group are; rank 0 of the group has the head.
Place PlaceIn(PmixGroup* group, bool is_server, int number, const StoreOptions& options) {
  const std::string key = format("tkv.role.{}", number);
  group->Put(key, is_server ? "server" : "worker");
  group->Exchange(options.server_patience, options.interrupt);
  Place place;
  for (int rank = 0; rank < group->size(); ++rank) {
    const bool serves = group->Get(rank, key) == "server";
    const int index = serves ? place.servers++ : place.workers++;
    if (rank == group->rank()) (serves ? place.server : place.worker) = index;
  }
  if (place.workers == 0) {
    throw Fail(Code::kInvalidArgument, "all {} processes of the group are servers", group->size());
  }
  if (place.servers == 0) {
    place.servers = ServersAmong(options, place.workers);
    if (place.worker < place.servers) place.server = place.worker;
  }
  place.has_head = group->rank() == 0;
  return place;
}

Notice NoticeIn(PmixGroup* group, int number, const StoreOptions& options) {
  const std::string key = format("tkv.job.{}", number);
  return {[=](const std::string& text) {
            group->Put(key, text);
            group->Exchange(options.server_patience, options.interrupt);
          },
          [=] {
            group->Exchange(options.server_patience, options.interrupt);
            return group->Get(0, key);
          }};
}

// Joined once in a process, and left at its end, as the launcher expects.
PmixGroup* GroupOfProcess() {
  static const std::unique_ptr<PmixGroup> group = PmixGroup::Join();
  return group.get();
}

// What a process of the group serves.
class GroupService final : public Service {
 public:
  explicit GroupService(std::vector<std::unique_ptr<Service>> services)
      : services_(std::move(services)) {}
  const std::string& address() const override { return services_.back()->address(); }
  bool Wait(std::chrono::milliseconds longest) override {
    return std::all_of(services_.begin(), services_.end(),
                       [&](const auto& service) { return service->Wait(longest); });
  }
  void Exited(Job::Role role, int index) override { services_.front()->Exited(role, index); }

 private:
  const std::vector<std::unique_ptr<Service>> services_;
};

}  // namespace

std::shared_ptr<Worker> WorkerByRendezvous(const std::string& type, const StoreOptions& options) {
  if (options.num_workers < 1 || options.rank < 0 || options.rank >= options.num_workers) {
    throw Fail(Code::kInvalidArgument, "create '{}': rank {} of {} workers", type, options.rank,
               options.num_workers);
  }
  Place place;
  place.workers = options.num_workers;
  place.servers = ServersAmong(options, options.num_workers);
  place.worker = options.rank;
  if (options.rank < place.servers) place.server = options.rank;
  place.has_head = options.rank == 0;
  const std::string key = format("tensorkv/{}/job", NextJob(options.rank));
  const Notice notice{[&](const std::string& text) { options.rendezvous->Set(key, text); },
                      [&] { return options.rendezvous->Get(key, options.server_patience); }};
  return WorkerWithHost(type, options, place, notice);
}

std::shared_ptr<Worker> WorkerInGroup(const std::string& type, const StoreOptions& options) {
  PmixGroup* const group = GroupOfProcess();
  const int number = NextJob(group->rank());
  const Place place = PlaceIn(group, false, number, options);
  return WorkerWithHost(type, options, place, NoticeIn(group, number, options));
}

std::unique_ptr<Service> Service::StartInGroup(const StoreOptions& options) {
  PmixGroup* const group = GroupOfProcess();
  const int number = NextJob(group->rank());
  const Place place = PlaceIn(group, true, number, options);
  Job job;
  return std::make_unique<GroupService>(
      HostJob(options, place, NoticeIn(group, number, options), &job));
}

// ---- workers ------------------------------------------------------------------------------------

std::shared_ptr<Worker> WorkerOfProcess(const std::string& type, const StoreOptions& options,
                                        const Job& job) {
  // A process is one worker of a job: that is a fact about the process, not about a store.
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Worker>> workers;
  std::lock_guard lock(mutex);
  std::shared_ptr<Worker> worker = workers[job.id].lock();
  if (worker != nullptr && !worker->is_of_this_process()) {
    [[maybe_unused]] auto* const kept = new std::shared_ptr<Worker>(worker);
    throw Fail(Code::kFailedPrecondition,
               "create '{}': this process was forked from worker {}, which is in the job; a child "
               "has no store of its own",
               type, worker->rank());
  }
  if (worker == nullptr || worker->is_over()) {
    WorkerOptions made;
    made.job = job.id;
    made.rank = job.rank;
    made.endpoint = OpenSockets(SocketsOf(job, {}));
    made.address_of = AddressesOf(job);
    worker = std::make_shared<Worker>(type, options, std::move(made));
    workers[job.id] = worker;
  }
  return worker;
}

}  // namespace tkv
