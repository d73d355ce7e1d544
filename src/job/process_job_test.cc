#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <thread>

#include "base/format.h"
#include "job/process_job.h"
#include "tests/arrays.h"
#include "tkv/kvstore.h"
#include "transport/address.h"
#include "transport/inproc/network.h"

namespace tkv {
namespace {

// A rendezvous between threads that act as processes.
class MapRendezvous final : public Rendezvous {
 public:
  // Makes a rendezvous.
  //   left  the value that an earlier start has left at every key, if there is one
  explicit MapRendezvous(std::string left = {}) : left_(std::move(left)) {}
  void Set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string Get(const std::string& key, std::chrono::milliseconds longest) override {
    std::unique_lock lock(mutex_);
    was_asked_ = true;
    if (!left_.empty() && !values_.contains(key)) return left_;
    if (!changed_.wait_for(lock, longest, [&] { return values_.contains(key); })) {
      throw Error(Code::kDeadlineExceeded, "nobody has set " + key);
    }
    return values_[key];
  }
  bool was_asked() const { return was_asked_; }

 private:
  const std::string left_;
  std::atomic<bool> was_asked_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

Job HeadOf(int workers, int servers) {
  Job job;
  job.role = Job::Role::kHead;
  job.workers = workers;
  job.servers = servers;
  return job;
}

Job MemberOf(const Job& head, const std::string& address, Job::Role role, int rank) {
  Job job = head;
  job.role = role;
  job.head = address;
  job.rank = rank;
  return job;
}

// A transport that is not built in: between threads of this process.
class OwnTransport final : public Transport {
 public:
  std::string_view name() const override { return "own"; }
  bool CanReach(const std::string& addresses) const override {
    if (!addresses.starts_with("own:")) throw Error(Code::kInvalidArgument, addresses);
    return true;
  }
  std::vector<std::string> ListenAt(const ListenPlace& place) const override {
    return {place.is_head && !place.head.empty() ? place.head : NewAddress()};
  }
  std::string HeadAddress(const std::string& job) const override { return "own:head-" + job; }
  bool shares_memory() const override { return false; }
  std::unique_ptr<Endpoint> Open(EndpointOptions options) const override {
    ++opened_;
    return network_.Listen(options.listen.empty() ? NewAddress() : options.listen[0]);
  }
  int opened() const { return opened_; }

 private:
  std::string NewAddress() const { return "own:" + std::to_string(++last_); }
  mutable InprocNetwork network_;
  mutable std::atomic<int> last_{0}, opened_{0};
};

enum class Way : uint8_t { kUnix, kTcp, kOwn };

// A head and servers over a transport, and one worker in this process.
class TransportJob : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    Job head = HeadOf(1, 2);
    head.id = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    if (GetParam() == Way::kTcp) {
      head.head = "tcp:127.0.0.1:0";
      head.token = "the secret of this test";
    }
    if (GetParam() == Way::kOwn) head.carrier = options_.carrier = own_;
    services_.push_back(Service::Start(head));
    const std::string address = services_[0]->address();
    for (int i = 0; i < 2; ++i) {
      services_.push_back(Service::Start(MemberOf(head, address, Job::Role::kServer, i)));
    }
    worker_ = MemberOf(head, address, Job::Role::kWorker, 0);
  }
  const std::shared_ptr<OwnTransport> own_ = std::make_shared<OwnTransport>();
  StoreOptions options_;
  std::vector<std::unique_ptr<Service>> services_;
  Job worker_;
};

TEST_P(TransportJob, ServicesAreOverWhenTheWorkerHasLeft) {
  auto worker = WorkerOfProcess("dist_sync", options_, worker_);
  EXPECT_EQ(worker->workers(), 1);
  EXPECT_FALSE(services_[0]->Wait(std::chrono::milliseconds(1)));
  const uint32_t store = worker->stores().Open(worker->rank());
  EXPECT_EQ(WorkerOfProcess("dist_sync", options_, worker_), worker) << "one life in a process";
  EXPECT_TRUE(worker->stores().Close(store));
  worker->Run([](ClientNode& node, Time now) {
    Operation leave;
    leave.request = Operation::Leave{};
    node.Begin(std::move(leave), now);
  });
  for (auto service = services_.rbegin(); service != services_.rend(); ++service) {
    EXPECT_TRUE((*service)->Wait(std::chrono::seconds(10)));
  }
}

TEST_P(TransportJob, AHeadIsToldThatAServerHasEnded) {
  auto worker = WorkerOfProcess("dist_sync", options_, worker_);
  services_[2].reset();
  services_[0]->Exited(Job::Role::kServer, 1);
  for (int i = 0; i < 500; ++i) {
    const bool is_dead = worker->Run([](ClientNode& node, Time) {
      return node.member().epoch().servers[1].state == Epoch::State::kDead;
    });
    if (is_dead) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "the worker does not know";
}

TEST(Carrier, LivesAsLongAsWhatItHasOpened) {
  auto own = std::make_shared<OwnTransport>();
  const std::weak_ptr<OwnTransport> carrier = own;
  Job job = HeadOf(1, 1);
  job.id = "carrier";
  job.carrier = own;
  StoreOptions options;
  options.carrier = own;
  auto head = Service::Start(job);
  auto server = Service::Start(MemberOf(job, head->address(), Job::Role::kServer, 0));
  auto worker =
      WorkerOfProcess("dist_sync", options, MemberOf(job, head->address(), Job::Role::kWorker, 0));
  own.reset();
  job.carrier.reset();
  options.carrier.reset();
  worker->Stop();
  head.reset();
  EXPECT_FALSE(carrier.expired());
  server.reset();
  EXPECT_FALSE(carrier.expired()) << "the worker has an endpoint of it";
  worker.reset();
  EXPECT_TRUE(carrier.expired());
}

TEST(Carrier, OfAServiceLivesAsLongAsTheService) {
  Job job = HeadOf(1, 1);
  auto own = std::make_shared<OwnTransport>();
  const std::weak_ptr<OwnTransport> carrier = own;
  job.carrier = std::move(own);
  auto head = Service::Start(job);
  job.carrier.reset();
  EXPECT_FALSE(carrier.expired());
  head.reset();
  EXPECT_TRUE(carrier.expired());
}

TEST(Carrier, SaysItselfWhichAddressesOfAHeadThereAre) {
  setenv("TKV_HEAD", "own:anywhere", 1);
  setenv("TKV_JOB", "carrier", 1);
  EXPECT_FAILS(Code::kInvalidArgument, JobFromEnvironment());
  const auto own = std::make_shared<OwnTransport>();
  const Job job = JobFromEnvironment(own);
  EXPECT_EQ(job.head, "own:anywhere");
  EXPECT_EQ(job.carrier, own);
  setenv("TKV_HEAD", "pigeon:home", 1);
  EXPECT_FAILS(Code::kInvalidArgument, JobFromEnvironment(own));
  unsetenv("TKV_HEAD");
  unsetenv("TKV_JOB");
}

INSTANTIATE_TEST_SUITE_P(Unix, TransportJob, ::testing::Values(Way::kUnix));
INSTANTIATE_TEST_SUITE_P(Tcp, TransportJob, ::testing::Values(Way::kTcp));
INSTANTIATE_TEST_SUITE_P(Own, TransportJob, ::testing::Values(Way::kOwn));

TEST(Transports, AnUnknownOneIsNamedWithThoseThereAre) {
  EXPECT_EQ(BuiltTransport("auto").name(), "auto");
  const auto failure = test::FailureOf([] { BuiltTransport("pigeon"); });
  EXPECT_EQ(failure.code, Code::kInvalidArgument);
  EXPECT_EQ(failure.message, "transport 'pigeon'; there are auto, unix, tcp");
}

TEST(Transports, EachSaysWhichAddressesItReaches) {
  const std::string near = "unix:" + HostId() + "/name", far = "unix:elsewhere/name";
  const std::string tcp = "tcp:192.0.2.1:5";
  for (const char* const name : {"auto", "unix"}) {
    EXPECT_TRUE(BuiltTransport(name).CanReach(near));
    EXPECT_FALSE(BuiltTransport(name).CanReach(far));
    EXPECT_TRUE(BuiltTransport(name).CanReach(far + "," + tcp));
  }
  EXPECT_FALSE(BuiltTransport("tcp").CanReach(near));
  EXPECT_TRUE(BuiltTransport("tcp").CanReach(tcp));
  EXPECT_FAILS(Code::kInvalidArgument, BuiltTransport("tcp").CanReach("pigeon:home"));
}

TEST(ListenAddresses, TcpIsOnlyForThoseWithAToken) {
  Job server = MemberOf(HeadOf(1, 1), "tcp:127.0.0.1:5", Job::Role::kServer, 0);
  EXPECT_EQ(ListenAddresses(server), std::vector<std::string>{"unix"});
  server.token = "secret of the job";
  EXPECT_EQ(ListenAddresses(server), (std::vector<std::string>{"unix", "tcp:127.0.0.1:0"}));
  const std::vector<std::string> fresh = ListenAddresses(HeadOf(1, 1));
  ASSERT_EQ(fresh.size(), 1U);
  EXPECT_EQ(JobOfHeadSocket(fresh[0].substr(std::string_view("unix:").size())), HeadOf(1, 1).id);
}

// Returns the sums of three workers that host the servers and the head.
std::vector<float> SumsOf(const StoreOptions& common) {
  constexpr int kWorkers = 3;
  const auto rendezvous = std::make_shared<MapRendezvous>();
  std::vector<float> sums(kWorkers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      StoreOptions options = common;
      options.rank = rank;
      options.num_workers = kWorkers;
      options.rendezvous = rendezvous;
      const auto store = KVStore::Create("dist_sync", options);
      const std::vector<float> ones(300'000, static_cast<float>(rank + 1));
      const NDArray value = NDArray::FromBytes(ones.data(), {300'000}, DType::kF32);
      const NDArray out = NDArray::Empty({300'000});
      store->Init("w", value);
      for (int step = 0; step < 5; ++step) {
        store->Push("w", value);
        store->Pull("w", out);
      }
      sums[static_cast<size_t>(rank)] = static_cast<const float*>(out.data())[299'999];
      store->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sums;
}

TEST(WorkersThatHostServers, SumOverSocketsAndWaitForEachOther) {
  EXPECT_EQ(SumsOf({}), std::vector<float>(3, 6.0F));
}

TEST(WorkersThatHostServers, SumOverATransportThatIsNotBuiltIn) {
  const auto own = std::make_shared<OwnTransport>();
  StoreOptions options;
  options.carrier = own;
  EXPECT_EQ(SumsOf(options), std::vector<float>(3, 6.0F));
  EXPECT_EQ(own->opened(), 3 + 3 + 1 + 2) << "workers, servers, the head, and two that looked "
                                             "whether it is there; nothing went another way";
}

TEST(Server, WhoseHeadNeverComesGivesUp) {
  const Job nobody = MemberOf(HeadOf(1, 1), "unix:elsewhere/nobody", Job::Role::kServer, 0);
  const auto server =
      StartService(nobody, {}, std::chrono::minutes(1), std::chrono::milliseconds(200));
  try {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (std::chrono::steady_clock::now() < end) {
      ASSERT_FALSE(server->Wait(std::chrono::milliseconds(20)));
    }
    FAIL() << "it is there after five seconds";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnavailable) << error.what();
  }
}

// A job whose processes start long after each other.  Their patience with a known server or head is
// shorter than that.
class LateJob : public ::testing::Test {
 protected:
  static constexpr std::chrono::milliseconds kLate{300};
  LateJob() {
    options_.server_patience = kLate / 10;
    head_.id = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    head_.head = Format("unix:{}/{}-{}", HostId(), head_.id, getpid());
  }
  std::unique_ptr<Service> Serve(Job::Role role) const {
    Job job = head_;
    job.role = role;
    if (role == Job::Role::kServer) job.rank = 0;
    return Service::Start(job, {}, options_.server_patience);
  }
  std::shared_ptr<Worker> Join() const {
    return WorkerOfProcess("dist_sync", options_,
                           MemberOf(head_, head_.head, Job::Role::kWorker, 0));
  }
  // Makes two workers that host the servers; one of them begins late.
  void ShareWithOneLate(int late) const {
    const auto shared = std::make_shared<MapRendezvous>();
    const auto create = [&](int rank) {
      StoreOptions options = options_;
      options.rendezvous = shared;
      options.num_workers = 2;
      options.rank = rank;
      if (rank == late) std::this_thread::sleep_for(kLate);
      KVStore::Create("dist_sync", options)->Close();
    };
    std::thread second(create, 1);
    EXPECT_NO_THROW(create(0));
    second.join();
  }

  StoreOptions options_;
  Job head_ = HeadOf(1, 1);
};

TEST_F(LateJob, AWorkerWaitsForItsHead) {
  std::unique_ptr<Service> head, server;
  std::thread late([&] {
    std::this_thread::sleep_for(kLate);
    head = Serve(Job::Role::kHead);
    server = Serve(Job::Role::kServer);
  });
  EXPECT_NO_THROW(Join()->Stop());
  late.join();
}

TEST_F(LateJob, AWorkerWaitsForAServer) {
  const auto head = Serve(Job::Role::kHead);
  std::unique_ptr<Service> server;
  std::thread late([&] {
    std::this_thread::sleep_for(kLate);
    server = Serve(Job::Role::kServer);
  });
  EXPECT_NO_THROW(Join()->Stop());
  late.join();
}

TEST_F(LateJob, AServerWaitsForItsHead) {
  const auto server = Serve(Job::Role::kServer);
  const auto end = std::chrono::steady_clock::now() + kLate;
  while (std::chrono::steady_clock::now() < end) {
    ASSERT_FALSE(server->Wait(std::chrono::milliseconds(10)));
  }
  const auto head = Serve(Job::Role::kHead);
  EXPECT_NO_THROW(Join()->Stop());
}

TEST_F(LateJob, WorkersThatShareAStoreWaitForTheFirst) { ShareWithOneLate(0); }

TEST_F(LateJob, WorkersThatShareAStoreWaitForTheSecond) { ShareWithOneLate(1); }

TEST_F(LateJob, AnObserverLooksAtAJobThatIsThere) {
  EXPECT_FAILS(Code::kDeadlineExceeded,
               ObserverOf(options_, MemberOf(head_, head_.head, Job::Role::kObserver, -1), "look"));
}

// Makes two workers of a job by that rendezvous; `more` is for the first.
void MakeJobOfTwo(const std::shared_ptr<MapRendezvous>& shared, const StoreOptions& more) {
  const auto make = [&shared](StoreOptions options, int rank) {
    options.rendezvous = shared;
    options.num_workers = 2;
    options.rank = rank;
    KVStore::Create("dist_sync", options)->Close();
  };
  std::thread second(make, StoreOptions(), 1);
  make(more, 0);
  second.join();
}

TEST(RendezvousJob, SaysAtInfoWhichSignOfAJobDecides) {
  setenv("PMIX_NAMESPACE", "p", 1);
  setenv("PMIX_RANK", "0", 1);
  for (const bool is_torchrun : {false, true}) {
    if (is_torchrun) setenv("TORCHELASTIC_RUN_ID", "t", 1);
    std::mutex mutex;
    std::string told;
    StoreOptions options;
    options.log = [&](int level, const std::string& text) {
      std::lock_guard lock(mutex);
      if (level == 1 && text.starts_with("the job is")) told += text;
    };
    MakeJobOfTwo(std::make_shared<MapRendezvous>(), options);
    std::lock_guard lock(mutex);
    EXPECT_EQ(told, Format("the job is that of {}; not that of PMIx (PMIX_NAMESPACE=p PMIX_RANK=0)",
                           is_torchrun ? "torchrun (TORCHELASTIC_RUN_ID=t)" : "bootstrap"));
  }
  for (const char* name : {"PMIX_NAMESPACE", "PMIX_RANK", "TORCHELASTIC_RUN_ID"}) unsetenv(name);
}

// Worker 0 has published a job that the second worker did not join in time.
TEST(RendezvousJob, WhoHasFailedToMakeAJobMakesItAgain) {
  const auto shared = std::make_shared<MapRendezvous>();
  StoreOptions alone;
  alone.rendezvous = shared;
  alone.num_workers = 2;
  alone.rank = 0;
  alone.patience = std::chrono::milliseconds(200);
  EXPECT_FAILS(Code::kDeadlineExceeded, KVStore::Create("dist_sync", alone));
  MakeJobOfTwo(shared, {});
}

// Two threads of a process join the same job; the first one has the longer patience.
TEST(Joining, OfAnotherThreadIsWaitedForWithOnesOwnPatienceAndInterrupt) {
  const Job nobody = MemberOf(HeadOf(1, 1), "unix:elsewhere/nobody", Job::Role::kWorker, 0);
  std::atomic<bool> waits{false}, ends{false};
  std::thread first([&] {
    StoreOptions options;
    options.interrupt = [&] {
      waits = true;
      if (ends) throw Error(Code::kCancelled, "the test ends");
    };
    EXPECT_FAILS(Code::kCancelled, WorkerOfProcess("dist_sync", options, nobody));
  });
  while (!waits) std::this_thread::yield();
  StoreOptions options;
  options.patience = std::chrono::milliseconds(100);
  EXPECT_FAILS(Code::kDeadlineExceeded, WorkerOfProcess("dist_sync", options, nobody));
  options.patience = std::chrono::minutes(1);
  options.interrupt = [] { throw Error(Code::kCancelled, "at once"); };
  EXPECT_FAILS(Code::kCancelled, WorkerOfProcess("dist_sync", options, nobody));
  const pid_t child = fork();
  if (child == 0) {
    const auto failure = test::FailureOf([&] { WorkerOfProcess("dist_sync", {}, nobody); });
    _exit(failure.code == Code::kFailedPrecondition ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ends = true;
  first.join();
}

// The terms left are those of an earlier start of the same job, whose processes have ended.
TEST(RendezvousJob, WhatAnEarlierStartHasLeftIsNotJoined) {
  const std::string head = Format("unix:{}/tkv-nobody-is-here", HostId());
  const std::string of_this_version = Format("old 2 {} {}0123456789abcdef", head.size(), head);
  const std::string of_another = Format("old {} 0123456789abcdef", head);
  for (const std::string& left : {of_this_version, of_another}) {
    SCOPED_TRACE(left);
    const auto shared = std::make_shared<MapRendezvous>(left);
    StoreOptions options;
    options.rendezvous = shared;
    options.num_workers = 2;
    options.server_patience = std::chrono::seconds(30);
    const auto train = [&options](int rank) {
      StoreOptions own = options;
      own.rank = rank;
      const auto store = KVStore::Create("dist_sync", own);
      store->Init("w", test::Floats({0}));
      store->Push("w", test::Floats({1}));
      const NDArray out = test::Floats({0});
      store->Pull("w", out);
      EXPECT_EQ(test::Values(out), std::vector<float>{2});
      store->Close();
    };
    std::thread second(train, 1);
    while (!shared->was_asked()) std::this_thread::yield();
    train(0);
    second.join();
  }
}

}  // namespace
}  // namespace tkv
