// A head or a server as a service, over the transport of its job.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/arena.h"
#include "base/duration.h"
#include "base/format.h"
#include "base/logfmt.h"
#include "base/process.h"
#include "job/cluster.h"
#include "job/failpoints.h"
#include "job/process_job.h"
#include "job/start_notice.h"
#include "options/log_line.h"
#include "rows/row_file.h"

namespace tkv {
namespace {

constexpr const char* kAgain = " again:";

// How long a server in a worker's process continues after its head has ended, while no worker is
// connected.
constexpr std::chrono::seconds kServedOut{5};
// If all workers are dead, a server waits this many times its patience for their restarts: 600 s by
// default, as long as rounds wait for a dead worker.
constexpr int kLivesFactor = 20;

// Returns true if no worker lives or may return, under any policy.
bool AreAllLast(const Epoch& epoch) {
  bool are_last = !epoch.workers.empty();
  for (size_t i = 0; i < epoch.workers.size(); ++i) are_last &= epoch.IsLast(static_cast<Rank>(i));
  return are_last;
}

std::string WhoIs(const Job& job) {
  return job.rank < 0 ? Name(job.role) : Format("{} {}", Name(job.role), job.rank);
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
    case Job::Role::kObserver:
      return "observer";
  }
  return "?";
}

std::string NewToken() { return RandomHex(32); }

std::string NewHeadAddress(const Job& job) { return TransportOf(job).HeadAddress(job.id); }

const Transport& TransportOf(const NetworkOptions& options) {
  return options.carrier != nullptr ? *options.carrier : BuiltTransport(options.transport);
}

std::vector<std::string> ListenAddresses(const Job& job) {
  const bool may_leave_host = !job.token.empty() || job.insecure_network;
  return TransportOf(job).ListenAt(
      {job.role == Job::Role::kHead, job.id, job.head, may_leave_host});
}

namespace {

// Returns when the endpoint uses TLS.
//   throws  kInvalidArgument  TLS is demanded, and there is no secret for its keys
UseTls UseTlsOf(const Job& job) {
  if (job.tls == "on" && job.token.empty() && job.insecure_network) {
    throw Fail(Code::kInvalidArgument,
               "{}: tls='on' and insecure_network: the keys of TLS are derived from the token of "
               "the job, and there is none",
               WhoIs(job));
  }
  if (job.tls == "off") return UseTls::kNever;
  return job.tls == "on" ? UseTls::kAlways : UseTls::kBetweenHosts;
}

}  // namespace

EndpointOptions EndpointOf(const Job& job, std::vector<std::string> listen,
                           const Service::Log& log) {
  const Transport& transport = TransportOf(job);
  EndpointOptions options;
  options.who = WhoIs(job);
  options.listen = std::move(listen);
  options.token = job.token;
  options.insecure_network = job.insecure_network;
  options.tls = UseTlsOf(job);
  options.check_bodies = job.check_values;
  if (log) {
    options.stands = [log](const std::string& text) {
      log(static_cast<int>(Level::kWarning), text);
    };
  }
  options.warn = [log, has_warned =
                           std::make_shared<std::atomic<bool>>(false)](const std::string& text) {
    if (log && !has_warned->exchange(true)) log(static_cast<int>(Level::kWarning), text);
  };
  if (!transport.shares_memory() || job.role == Job::Role::kHead) return options;
  std::string why;
  options.arena = Arena::Open(&why);
  if (options.arena == nullptr) {
    options.warn(Format("shared memory: {}; large values go through the socket", why));
  }
  return options;
}

std::unique_ptr<Endpoint> OpenEndpoint(const Job& job, EndpointOptions options) {
  // A failpoint "worker 1 again:..." also applies to later incarnations.  The launcher has already
  // removed the failpoints that do not apply to this one.
  std::string text = job.failpoints;
  for (size_t at = 0; (at = text.find(kAgain)) != std::string::npos;) {
    text.erase(at, std::strlen(kAgain) - 1);
  }
  std::vector<Failpoint> failpoints = FailpointsOf(WhoIs(job), text);
  return WithFailpoints(TransportOf(job).Open(std::move(options)), std::move(failpoints));
}

std::function<std::string(const Peer&)> AddressesOf(const Job& job) {
  return [head = job.head](const Peer&) { return head; };
}

namespace {

class JobService final : public Service {
 public:
  JobService(const Job& job, Log log, std::chrono::milliseconds patience,
             std::chrono::milliseconds first_patience)
      : carrier_(job.carrier),
        role_(job.role),
        is_in_worker_(job.is_in_worker),
        patience_(patience),
        first_patience_(first_patience),
        who_(WhoIs(job)),
        log_(log),
        notice_(who_, log) {
    if (job.workers < 1 || job.workers > kWorkersMax || job.servers < 1 ||
        job.servers > static_cast<int>(kServersMax)) {
      throw Fail(Code::kInvalidArgument,
                 "{}: {} workers and {} servers; 1 to {} workers and 1 to {} servers are possible",
                 WhoIs(job), job.workers, job.servers, kWorkersMax, kServersMax);
    }
    RaiseFileLimit();  // the head and the servers have a connection for each worker
    EndpointOptions endpoint_options = EndpointOf(job, ListenAddresses(job), log);
    if (endpoint_options.listen.empty()) {
      throw Fail(Code::kInvalidArgument,
                 "{}: transport '{}' leaves nothing to listen at; the head has to be at "
                 "tcp:HOST:PORT (it is at '{}') and TKV_TOKEN_FILE has to be set",
                 WhoIs(job), job.transport, job.head);
    }
    // Other processes of this host can read values in place.
    pool_ = std::make_unique<BufferPool>(endpoint_options.arena);
    auto endpoint = OpenEndpoint(job, std::move(endpoint_options));
    address_ = endpoint->address();
    Tell(EventFields("listening").Add("address", address_));
    NodeThreadOptions thread;
    thread.address_of = AddressesOf(job);
    thread.log = std::move(log);
    thread.failed = [this](const Peer&, const Error& error) {
      std::lock_guard lock(mutex_);
      out_of_reach_ = error.what();
    };
    thread.broken = [this](const Error& error) {
      std::lock_guard lock(mutex_);
      broken_ = error;
      changed_.notify_all();
    };
    thread_ = std::make_unique<NodeThread>(MakeNode(job), std::move(endpoint), std::move(thread));
    thread_->OnChange([this](Node& node) { OnChange(&node); });
    thread_->Start();
  }
  ~JobService() override {
    // After this, no other thread uses the members below.
    thread_->Stop();
    try {
      Tell(EventFields("ended").Add("because", broken_    ? broken_->what()
                                               : refused_ ? refused_->what()
                                               : over_    ? "all workers have left or are dead"
                                                          : "its process ends it"));
    } catch (const std::bad_alloc&) {
      return;
    }
  }

  const std::string& address() const override { return address_; }

  bool Wait(std::chrono::milliseconds longest) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, longest, [&] { return over_ || refused_ || broken_ || all_ended_; });
    if (broken_) throw Fail(broken_->code(), "{}: {}", who_, broken_->what());
    if (refused_) throw Error(*refused_);
    if (over_) {
      const bool tells = all_ended_ && !std::exchange(has_told_end_, true);
      lock.unlock();  // the log is a function of the user
      if (tells && log_) {
        log_(static_cast<int>(Level::kWarning),
             Format("{}: the head and all other workers have ended, some without close()", who_));
      }
      return true;
    }
    if (all_ended_) throw Fail(Code::kUnavailable, "the head and all workers have ended");
    if (idle_since_ == kNever) return false;
    const Time idle = NodeThread::Now() - idle_since_;
    if (!was_joined_) {
      const std::string why = out_of_reach_;
      // The log is a function of the user.
      lock.unlock();
      AwaitHead(idle, why);
      return false;
    }
    const bool is_served_out = is_in_worker_ && head_has_ended_;
    const std::chrono::nanoseconds longest_idle =
        is_served_out ? std::min<std::chrono::nanoseconds>(
                            {kServedOut, Saturated(patience_), Saturated(first_patience_) / 2})
        : awaits_lives_ ? Saturated(std::chrono::duration<double>(patience_) * kLivesFactor)
                        : Saturated(patience_);
    if (idle < longest_idle.count()) return false;
    // The last workers are dead, and none has come back.
    if (!head_is_lost_) return true;
    throw Fail(Code::kUnavailable, "the head and all workers have been gone for {:.0f} s",
               static_cast<double>(idle) / kSecond);
  }

  void Exited(Job::Role role, int index) override {
    // The member's first message may have arrived just before its end.  Handle it first, because
    // only a member that has joined can be declared dead.
    AsHead(role, index, [](HeadNode& head, Role of, const Epoch::Seat& seat, Rank rank) {
      head.Exited(of, rank, seat.incarnation);
    });
  }

  void Gone(Job::Role role, int index, bool has_failed) override {
    AsHead(role, index, [has_failed](HeadNode& head, Role of, const Epoch::Seat&, Rank rank) {
      head.Gone(of, rank, has_failed);
    });
  }

  bool IsSilent(Job::Role role, int index) const override {
    return AskHead(role, index,
                   [](const Head& head, Role of, Rank rank) { return head.IsSilent(of, rank); });
  }

  bool IsOver() const override {
    return role_ == Job::Role::kHead && thread_->Run([](Node& node, Time) {
      return AreAllLast(static_cast<HeadNode&>(node).head().epoch());
    });
  }

  bool HasLeft(Job::Role role, int index) const override {
    return AskHead(role, index,
                   [](const Head& head, Role of, Rank rank) { return head.HasLeft(of, rank); });
  }

  uint64_t LifeOf(Job::Role role, int index) const override {
    return AskHead(role, index,
                   [](const Head& head, Role of, Rank rank) { return head.LifeOf(of, rank); });
  }

  bool IsAnyWorkerAlive() const override {
    return role_ == Job::Role::kHead && thread_->Run([](Node& node, Time) {
      return static_cast<HeadNode&>(node).head().IsAnyWorkerAlive();
    });
  }

 private:
  // Logs that a server which has not joined yet still waits for the head.
  //   why  the reason why the head cannot be reached; empty: not known
  //   throws  kUnavailable  it has waited long enough
  void AwaitHead(Time waited, const std::string& why) {
    const auto for_whom = [&] { return Format(" for the head{}{}", why.empty() ? "" : ": ", why); };
    if (waited >= Saturated(first_patience_).count()) {
      throw Fail(Code::kUnavailable, "{}: waited {:.0f} s{}", who_,
                 static_cast<double>(waited) / kSecond, for_whom());
    }
    notice_.Tell(for_whom);
  }

  // Returns the head's answer about a member; false or 0 if the job has no such member.
  template <typename F>
  std::invoke_result_t<F, const Head&, Role, Rank> AskHead(Job::Role role, int index, F f) const {
    using Answer = std::invoke_result_t<F, const Head&, Role, Rank>;
    if (role_ != Job::Role::kHead) return {};
    if (role != Job::Role::kServer && role != Job::Role::kWorker) return {};
    const Role of = role == Job::Role::kServer ? Role::kServer : Role::kWorker;
    return thread_->Run([&](Node& node, Time) -> Answer {
      const Head& head = static_cast<HeadNode&>(node).head();
      const auto& members = of == Role::kServer ? head.epoch().servers : head.epoch().workers;
      if (index < 0 || static_cast<size_t>(index) >= members.size()) return {};
      return f(head, of, index);
    });
  }

  // Calls f for a member of the job, after the head has handled all messages that have arrived.
  template <typename F>
  void AsHead(Job::Role role, int index, F f) {
    if (role_ != Job::Role::kHead) {
      throw Fail(Code::kInvalidArgument, "a {} does not judge who is dead", Name(role_));
    }
    if (role != Job::Role::kServer && role != Job::Role::kWorker) return;
    const Role of = role == Job::Role::kServer ? Role::kServer : Role::kWorker;
    thread_->TakeWhatHasArrived(kSecond);
    thread_->Run([&](Node& node, Time) {
      auto& head = static_cast<HeadNode&>(node);
      const Epoch& epoch = head.head().epoch();
      const auto& members = of == Role::kServer ? epoch.servers : epoch.workers;
      if (index < 0 || static_cast<size_t>(index) >= members.size()) return;
      f(head, of, members[static_cast<size_t>(index)], index);
    });
  }

  std::unique_ptr<Node> MakeNode(const Job& job) {
    if (role_ == Job::Role::kHead) {
      HeadOptions head;
      head.job = job.id;
      head.protocol = ThisProtocol();
      head.workers = job.workers;
      head.servers = job.servers;
      head.policy = PolicyFromName(job.on_death);
      head.lives_return = job.lives_return;
      head.dead_after = std::chrono::nanoseconds(job.silence).count();
      return std::make_unique<HeadNode>(head, pool_.get(), NodeThread::Now());
    }
    MemberOptions member;
    member.job = job.id;
    member.role = Role::kServer;
    member.rank = job.rank;
    member.process = LifeNumber();
    member.protocol = ThisProtocol();
    member.address = address_;
    member.worker_beside_head = job.worker_beside_head;
    member.server_beside_head = job.server_beside_head;
    member.AllowSilence(std::chrono::nanoseconds(job.silence).count());
    ShardOptions shard;
    shard.job = job.id;
    shard.protocol = member.protocol;
    if (!job.rows_dir.empty()) shard.disk = std::make_shared<RowFile>(job.rows_dir);
    auto server = std::make_unique<ServerNode>(member, shard, pool_.get());
    server->SetClock(NodeThread::Now);
    return server;
  }

  // Logs a step in the life of this process.
  void Tell(const Fields& event) const {
    if (log_) log_(static_cast<int>(Level::kInfo), Format("{} {}", who_, event.text()));
  }

  // Logs the members whose state has changed since the last call.  Runs under the node's lock.
  void TellSeats(const char* kind, const std::vector<Epoch::Seat>& members,
                 std::vector<Epoch::Seat>* told) const {
    told->resize(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      if (std::exchange((*told)[i], members[i]) == members[i]) continue;
      if (members[i].state == Epoch::State::kAwaited) continue;
      Tell(EventFields("member")
               .Add("peer", Format("{} {}", kind, i))
               .Add("state", Name(members[i].state))
               .Add("incarnation", members[i].incarnation));
    }
  }

  void TellSteps(const Epoch& epoch, const Member* self) {
    // The head logs its members by itself.
    if (!log_ || self == nullptr) return;
    if (self->joined() && epoch.number > 0 && !std::exchange(has_joined_, true)) {
      Tell(EventFields("joined")
               .Add("server", self->welcome().rank)
               .Add("of", epoch.servers.size())
               .Add("workers", epoch.workers.size()));
    }
    TellSeats("worker", epoch.workers, &told_workers_);
  }

  // Updates the state of the service.  Runs under the node's lock.
  void OnChange(Node* node) {
    const bool is_head = role_ == Job::Role::kHead;
    const Epoch& epoch = is_head ? static_cast<HeadNode*>(node)->head().epoch()
                                 : static_cast<ServerNode*>(node)->member().epoch();
    TellSteps(epoch, is_head ? nullptr : &static_cast<ServerNode*>(node)->member());
    bool is_over = AreAllLast(epoch);
    bool is_idle =
        !epoch.workers.empty() && std::ranges::all_of(epoch.workers, &Epoch::Seat::IsOver);
    bool head_is_lost = false;
    bool head_has_ended = false;
    bool all_ended = false, all_left = false;  // without a head, and nobody else comes
    const std::optional<Error>* refused = nullptr;
    if (is_head) {
      // Servers report when they are done.  A server that reports nothing more is not awaited for
      // ever.
      is_idle = is_idle || is_over;
      is_over = is_over &&
                std::ranges::count(epoch.servers, Epoch::State::kAlive, &Epoch::Seat::state) == 0;
    } else {
      auto* const server = static_cast<ServerNode*>(node);
      refused = &server->member().refused();
      head_is_lost = !server->member().joined() || server->member().link() == kNoLink;
      head_has_ended = server->member().head_has_ended();
      const bool is_useless =
          head_has_ended && !server->shard().has_clients() && server->shard().HaveLivingEnded();
      all_ended = is_useless && !server->shard().HaveAllLeft();
      all_left = is_useless && !all_ended;
      is_idle = is_idle || (head_is_lost && !server->shard().has_clients());
      if (is_over && !has_left_) {
        has_left_ = true;
        server->Leave();
      }
      is_over = is_over && (server->has_left() || head_is_lost);
      // With the head gone, dead workers cannot return.  For a separate server that is an error,
      // unless all workers have left or the head has answered its leave.
      const bool have_all_left = std::ranges::all_of(
          epoch.workers, [](const Epoch::Seat& seat) { return seat.state == Epoch::State::kLeft; });
      is_over =
          is_over && (!head_has_ended || is_in_worker_ || have_all_left || server->has_left());
      is_over = is_over || all_left || (all_ended && is_in_worker_);
    }
    const bool may_return =
        std::ranges::count(epoch.workers, Epoch::State::kDead, &Epoch::Seat::state) > 0;
    std::lock_guard lock(mutex_);
    was_joined_ = was_joined_ || !epoch.servers.empty();
    awaits_lives_ = may_return && !head_is_lost;
    head_is_lost_ = head_is_lost;
    head_has_ended_ = head_has_ended;
    all_ended_ = all_ended;
    idle_since_ = !is_idle ? kNever : std::min(idle_since_, NodeThread::Now());
    over_ = is_over;
    if (refused != nullptr && *refused && !has_left_ && !refused_) refused_ = *refused;
    if (over_ || refused_ || all_ended_) changed_.notify_all();
  }

  // Declared first, so that the transport outlives the endpoint that it opened.
  const std::shared_ptr<const Transport> carrier_;
  const Job::Role role_;
  const bool is_in_worker_;
  const std::chrono::milliseconds patience_;
  const std::chrono::milliseconds first_patience_;
  const std::string who_;
  const Log log_;
  StartNotice notice_;
  // The joining was logged.  This member and the next one are guarded by the node's lock.
  bool has_joined_ = false;
  std::vector<Epoch::Seat> told_workers_;
  std::unique_ptr<BufferPool> pool_;
  std::string address_;
  // The GOODBYE was sent.  Guarded by the node's lock.
  bool has_left_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  bool was_joined_ = false;
  std::string out_of_reach_;   // the reason why the head cannot be reached
  bool awaits_lives_ = false;  // dead workers may have next incarnations
  bool head_is_lost_ = false;
  bool head_has_ended_ = false;
  bool all_ended_ = false;  // the head and all workers have ended, and some had not left
  bool has_told_end_ = false;
  Time idle_since_ = kNever;
  std::optional<Error> refused_;
  std::optional<Error> broken_;  // the reason why the node can do nothing more
  std::unique_ptr<NodeThread> thread_;
};

}  // namespace

std::unique_ptr<Service> StartService(const Job& job, const Service::Log& log,
                                      std::chrono::milliseconds patience,
                                      std::chrono::milliseconds first_patience) {
  if (job.role != Job::Role::kServer && job.role != Job::Role::kHead) {
    throw Fail(Code::kInvalidArgument, "{} is no service; it has a store",
               job.role == Job::Role::kWorker ? "a worker" : "an observer");
  }
  return std::make_unique<JobService>(job, log, patience, first_patience);
}

std::unique_ptr<Service> Service::Start(const Job& job, Log log,
                                        std::chrono::milliseconds patience) {
  return StartService(job, WithoutThrowing(std::move(log)), patience, StoreOptions().patience);
}

}  // namespace tkv
