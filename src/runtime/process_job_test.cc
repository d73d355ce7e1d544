#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <thread>

#include "runtime/process_job.h"
#include "tests/arrays.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

// What processes share, among threads.
class MapRendezvous final : public Rendezvous {
 public:
  void Set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string Get(const std::string& key, std::chrono::milliseconds longest) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, longest, [&] { return values_.contains(key); })) {
      throw Error(Code::kDeadlineExceeded, "nobody has set " + key);
    }
    return values_[key];
  }

 private:
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

// A head and servers over sockets, and one worker in this process.
class SocketJob : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    Job head = HeadOf(1, 2);
    head.id = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    if (GetParam()) {
      head.head = "tcp:127.0.0.1:0";
      head.token = "the secret of this test";
    }
    services_.push_back(Service::Start(head));
    const std::string address = services_[0]->address();
    for (int i = 0; i < 2; ++i) {
      services_.push_back(Service::Start(MemberOf(head, address, Job::Role::kServer, i)));
    }
    worker_ = MemberOf(head, address, Job::Role::kWorker, 0);
  }
  std::vector<std::unique_ptr<Service>> services_;
  Job worker_;
};

TEST_P(SocketJob, ServicesAreOverWhenTheWorkerHasLeft) {
  auto worker = WorkerOfProcess("dist_sync", {}, worker_);
  EXPECT_EQ(worker->workers(), 1);
  EXPECT_FALSE(services_[0]->Wait(std::chrono::milliseconds(1)));
  const uint32_t store = worker->OpenStore();
  EXPECT_EQ(WorkerOfProcess("dist_sync", {}, worker_), worker) << "one life in a process";
  EXPECT_TRUE(worker->CloseStore(store));
  worker->Run([](ClientNode& node, Time now) {
    Operation leave;
    leave.kind = Operation::Kind::kLeave;
    node.Begin(std::move(leave), now);
  });
  for (auto service = services_.rbegin(); service != services_.rend(); ++service) {
    EXPECT_TRUE((*service)->Wait(std::chrono::seconds(10)));
  }
}

TEST_P(SocketJob, AHeadIsToldThatAServerHasEnded) {
  auto worker = WorkerOfProcess("dist_sync", {}, worker_);
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

INSTANTIATE_TEST_SUITE_P(Unix, SocketJob, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Tcp, SocketJob, ::testing::Values(true));

TEST(ListenAddresses, TcpIsOnlyForThoseWithAToken) {
  Job server = MemberOf(HeadOf(1, 1), "tcp:127.0.0.1:5", Job::Role::kServer, 0);
  EXPECT_EQ(ListenAddresses(server), std::vector<std::string>{"unix"});
  server.token = "secret of the job";
  EXPECT_EQ(ListenAddresses(server), (std::vector<std::string>{"unix", "tcp:127.0.0.1:0"}));
  EXPECT_EQ(ListenAddresses(HeadOf(1, 1)), std::vector<std::string>{"unix"});
}

TEST(WorkersThatHostServers, SumOverSocketsAndWaitForEachOther) {
  constexpr int kWorkers = 3;
  const auto rendezvous = std::make_shared<MapRendezvous>();
  std::vector<float> sums(kWorkers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      StoreOptions options;
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
  EXPECT_EQ(sums, std::vector<float>(kWorkers, 6.0F));
}

TEST(Server, WhoseHeadNeverComesGivesUp) {
  const Job nobody = MemberOf(HeadOf(1, 1), "unix:elsewhere/nobody", Job::Role::kServer, 0);
  const auto server = Service::Start(nobody, {}, std::chrono::milliseconds(200));
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

}  // namespace
}  // namespace tkv
