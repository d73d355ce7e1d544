#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/arrays.h"
#include "tests/cluster_fixture.h"

namespace tkv::testing {
namespace {

using test::EachWorker;
using test::Floats;
using test::Full;
using test::JobOf;
using test::Values;

TEST(Cluster, EveryWorkerSeesTheSumOfAll) {
  Cluster cluster(JobOf(4, 2));
  EachWorker(&cluster, [](KVStore* store) {
    store->Init("w", Full({600, 1000}, 0));
    for (int round = 1; round <= 5; ++round) {
      store->Push("w", Full({600, 1000}, store->rank() + round));
      const NDArray out = Full({600, 1000}, -1);
      store->Pull("w", out);
      const float wanted = static_cast<float>(6 + 4 * round);
      for (const float value : Values(out)) ASSERT_EQ(value, wanted);
      EXPECT_EQ(store->Round("w"), static_cast<uint64_t>(round));
    }
  });
}

TEST(Cluster, TheOptimizerRunsOnTheServers) {
  Cluster cluster(JobOf(3, 2));
  EachWorker(&cluster, [](KVStore* store) {
    store->Init(1, Floats({10, 10}));
    const auto sgd = Optimizer::Create("sgd", {{"learning_rate", 1}});
    store->SetOptimizer(sgd);
    const NDArray out = Floats({0, 0});
    const NDArray grad[] = {Floats({1, 0})};
    store->PushPull(1, grad, std::span(&out, 1));
    EXPECT_EQ(Values(out), (std::vector<float>{7, 10}));
    if (store->rank() == 0) sgd->SetParam("learning_rate", 2);  // rank 0 defines it
    store->PushPull(1, grad, std::span(&out, 1));
    EXPECT_EQ(Values(out), (std::vector<float>{1, 10}));
  });
}

TEST(Cluster, AClosedStoreOfAnyRankSavesNothing) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::string folder = mkdtemp(name.data());
  ClusterOptions options = JobOf(2, 1);
  options.store.snapshots = folder;
  options.store.snapshot_every = "1000";
  Cluster cluster(options);
  EachWorker(&cluster, [&](KVStore* store) {
    store->Close();
    EXPECT_FAILS(Code::kFailedPrecondition, store->Save(folder));
    EXPECT_FAILS(Code::kFailedPrecondition, store->Save(folder + "/other"));
    EXPECT_FAILS(Code::kFailedPrecondition, store->SaveAsync(folder));
  });
}

TEST(Cluster, PushesThatFailAreNoRoundsOfTheSchedule) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::string folder = mkdtemp(name.data());
  ClusterOptions options = JobOf(1, 1);
  options.store.snapshots = folder + "/scheduled";
  options.store.snapshot_every = "5";
  Cluster cluster(options);
  EachWorker(&cluster, [&](KVStore* store) {
    store->Init("w", Floats({0}));
    store->Push("w", Floats({1}));
    for (int i = 0; i < 10; ++i) {
      EXPECT_FAILS(Code::kInvalidArgument, store->Push("w", Floats({1, 2})));
    }
    store->Save(folder + "/own");  // a save by the schedule ends before
    EXPECT_FALSE(std::filesystem::exists(folder + "/scheduled"));
  });
}

// All ranks call save at the end of a script, and one is late.
TEST(Cluster, ARankThatHasBecomeTheLowestRepeatsNoSave) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::string folder = mkdtemp(name.data());
  const std::string both = folder + "/both";
  const std::string late = folder + "/late";
  std::latch has_left(1);
  Cluster cluster(JobOf(2, 1));
  EachWorker(&cluster, [&](KVStore* store) {
    store->Init("w", Floats({1, 2}));
    store->Push("w", Floats({1, 1}));
    store->Pull("w", Floats({0, 0}));
    if (store->rank() == 0) {
      EXPECT_EQ(store->Save(both), both + "/000001");
      store->Close();
      has_left.count_down();
      return;
    }
    has_left.wait();
    // There is no snapshot, so this is no repetition.
    std::string saved;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (saved.empty() && std::chrono::steady_clock::now() < end) saved = store->Save(late);
    EXPECT_EQ(saved, late + "/000001");
    EXPECT_EQ(store->Save(both), "");
    const Ticket ticket = store->SaveAsync(both);
    ticket->Wait(std::chrono::seconds(60));
    EXPECT_EQ(ticket->saved_path(), "");
    EXPECT_FALSE(std::filesystem::exists(both + "/000002"));
  });
  std::filesystem::remove_all(folder);
}

TEST(Cluster, ABarrierWaitsForAll) {
  Cluster cluster(JobOf(3, 1));
  std::atomic<int> arrived{0};
  EachWorker(&cluster, [&](KVStore* store) {
    for (int i = 1; i <= 10; ++i) {
      ++arrived;
      store->Barrier();
      EXPECT_GE(arrived.load(), 3 * i);
      store->Barrier();
    }
  });
}

TEST(Cluster, AsyncPushesCountWithoutWaiting) {
  Cluster cluster(JobOf(2, 1, "dist_async"));
  EachWorker(&cluster, [](KVStore* store) {
    store->Init(1, Floats({0}));
    store->SetOptimizer(Optimizer::Create("test"));
    store->Barrier();
    for (int i = 0; i < 20; ++i) store->Push(1, Floats({1}));
    const NDArray out = Floats({0});
    store->Pull(1, out);
    EXPECT_GE(Values(out)[0], 20);
    store->Barrier();
    store->Pull(1, out);
    EXPECT_EQ(Values(out)[0], 40);
  });
}

TEST(Cluster, AnotherShapeThanRankZeroHasIsAnError) {
  Cluster cluster(JobOf(2, 1));
  EachWorker(&cluster, [](KVStore* store) {
    if (store->rank() == 0) {
      store->Init("w", Full({2, 3}, 0));
    } else {
      EXPECT_FAILS(Code::kInvalidArgument, store->Init("w", Full({3, 2}, 0)));
      EXPECT_FALSE(store->Contains("w"));
      store->Init("w", Full({2, 3}, 0));
    }
    store->Barrier();
  });
}

TEST(Cluster, AWaitThatEndsNamesWhoIsMissing) {
  ClusterOptions options = JobOf(2, 1);
  options.store.patience = std::chrono::seconds(2);
  Cluster cluster(options);
  const auto first = cluster.Join(0);
  const auto second = cluster.Join(1);
  first->Init("w", Floats({0}));
  first->Push("w", Floats({1}));
  const auto failure = test::FailureOf([&] { first->Pull("w", Floats({0})); });
  EXPECT_EQ(failure.code, Code::kDeadlineExceeded);
  EXPECT_TRUE(failure.message.starts_with("pull 'w': waited ")) << failure.message;
  EXPECT_NE(failure.message.find(" s for worker 1 (alive), round 1"), std::string::npos)
      << failure.message;
}

TEST(Cluster, ALeaverIsNamed) {
  Cluster cluster(JobOf(2, 1));
  const auto first = cluster.Join(0);
  auto second = cluster.Join(1);
  first->Init("w", Floats({0}));
  second->Close();
  first->Push("w", Floats({1}));
  const auto failure = test::FailureOf([&] { first->Pull("w", Floats({0})); });
  EXPECT_EQ(failure.code, Code::kUnavailable);
  EXPECT_EQ(failure.message, "pull 'w': worker 1 left after round 0; round 1 needs it");
}

TEST(Cluster, AWorkerWhoseStoreAnExceptionUnwindsHasDiedAndHasNotLeft) {
  Cluster cluster(JobOf(2, 1));
  const auto store = cluster.Join(0);
  std::thread other([&] {
    try {
      const auto failing = cluster.Join(1);
      failing->Init("w", Full({2}, 0));
      throw std::runtime_error("a mistake of the program");
    } catch (const std::runtime_error&) {
    }
  });
  store->Init("w", Full({2}, 0));
  other.join();
  store->Push("w", Full({2}, 1));
  const auto failure = test::FailureOf([&] { store->Pull("w", Full({2}, 0)); });
  EXPECT_EQ(failure.code, Code::kUnavailable);
  EXPECT_TRUE(failure.message.starts_with("pull 'w': worker 1 is dead")) << failure.message;
}

TEST(Cluster, ADeadServerIsNamedAndNothingHangs) {
  ClusterOptions options = JobOf(1, 2);
  options.store.server_patience = std::chrono::milliseconds(500);
  Cluster cluster(options);
  const auto store = cluster.Join(0);
  for (int key = 0; key < 8; ++key) store->Init(key, Floats({1}));
  cluster.KillServer(1);
  int failures = 0;
  for (int key = 0; key < 8; ++key) {
    const auto failure = test::FailureOf([&] { store->Pull(key, Floats({0})); });
    if (!failure.code) continue;
    ++failures;
    EXPECT_EQ(failure.code, Code::kUnavailable);
    EXPECT_NE(failure.message.find("server 1"), std::string::npos) << failure.message;
  }
  EXPECT_GT(failures, 0);
  EXPECT_LT(failures, 8);
}

TEST(Cluster, ALaterLifeGoesOnWhereItsRoundsAre) {
  ClusterOptions options = JobOf(2, 1);
  options.store.on_death = "wait";
  Cluster cluster(options);
  const auto first = cluster.Join(0);
  auto second = cluster.Join(1);
  for (KVStore* store : {first.get(), second.get()}) store->Init("w", Floats({0}));
  for (KVStore* store : {first.get(), second.get()}) store->Push("w", Floats({1}));
  second->Pull("w", Floats({0}));  // round 1 is complete
  first->Push("w", Floats({10}));  // round 2, which the second worker does not live to see
  second.reset();
  const auto third = cluster.Join(1);
  EXPECT_TRUE(third->rejoined());
  third->Init("w", Floats({0}));
  EXPECT_EQ(third->Round("w"), 1U);
  third->Push("w", Floats({20}));
  const NDArray out = Floats({0});
  first->Pull("w", out);
  EXPECT_EQ(Values(out)[0], 30);
}

TEST(Cluster, AFailureThatNobodySawIsRaisedByTheNextCallAndByClose) {
  ClusterOptions options = JobOf(2, 1);
  Cluster cluster(options);
  const auto first = cluster.Join(0);
  auto second = cluster.Join(1);
  first->Init("w", Floats({0}));
  second->Close();
  first->Push("w", Floats({1}));
  first->Push("w", Floats({2}));  // follows a round that cannot complete
  bool raised = false;
  for (int i = 0; i < 200 && !raised; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // A pull reports its own failure, so only the failure of the second push is unseen.
    const auto failure = test::FailureOf([&] { first->Pull("w", Floats({0})); });
    raised = failure.code == Code::kUnavailable &&
             failure.message.find("an earlier call failed: push 'w'") != std::string::npos;
  }
  EXPECT_TRUE(raised);
  first->Push("w", Floats({4}));
  EXPECT_FAILS(Code::kUnavailable, first->Close());
}

TEST(Cluster, TicketsAndBusyArraysOutliveTheirStore) {
  Cluster cluster(JobOf(2, 1));
  auto first = cluster.Join(0);
  const auto second = cluster.Join(1);
  first->Init("w", Floats({0}));
  const NDArray value = Floats({1});
  const NDArray out = Floats({0});
  const NDArray* values[] = {&value};
  const NDArray* outs[] = {&out};
  const PushItem push{"w", values};
  const PullItem pull{"w", outs};
  const Ticket pushed = first->PushAsync({&push, 1});
  const Ticket both = first->PushPullAsync({&push, 1}, {&pull, 1});  // waits for the second worker
  first.reset();
  EXPECT_TRUE(both->done());
  EXPECT_FAILS(Code::kCancelled, both->Wait(std::chrono::seconds(1)));
  EXPECT_TRUE(pushed->done());
  Fill(value, 2);
}

TEST(Cluster, CloseTellsNothingOfWhatItEndsItself) {
  Cluster cluster(JobOf(2, 1));
  const auto first = cluster.Join(0);
  const auto second = cluster.Join(1);
  first->Init("w", Floats({0}));
  const NDArray value = Floats({1});
  const NDArray* values[] = {&value};
  const PushItem push{"w", values};
  const PullItem pull{"w", values};
  const Ticket both = first->PushPullAsync({&push, 1}, {&pull, 1});  // waits for the second worker
  const Ticket barrier = first->BarrierAsync();
  EXPECT_NO_THROW(first->Close());
  EXPECT_FAILS(Code::kCancelled, both->Wait(std::chrono::seconds(1)));
  EXPECT_FAILS(Code::kCancelled, barrier->Wait(std::chrono::seconds(1)));
}

TEST(Cluster, AStoreThatCannotJoinLeavesNothingBehind) {
  ClusterOptions options = JobOf(1, 1);
  options.store.interrupt = [] { throw std::runtime_error("interrupted"); };
  options.store.patience = options.store.server_patience = std::chrono::milliseconds(500);
  Cluster cluster(options);
  cluster.KillServer(0);  // perhaps before it has joined: then nobody can
  try {
    cluster.Join(0);
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "interrupted");
  }
}

TEST(Cluster, DeterministicSumsHaveEqualBits) {
  std::vector<std::vector<float>> results;
  for (int run = 0; run < 3; ++run) {
    ClusterOptions options = JobOf(4, 1);
    options.store.deterministic = true;
    Cluster cluster(options);
    EachWorker(&cluster, [&](KVStore* store) {
      store->Init(1, Floats({0, 0}));
      const float value = store->rank() == 0 ? 1e8F : 0.1F * static_cast<float>(store->rank());
      const NDArray out = Floats({0, 0});
      const NDArray grad[] = {Floats({value, -value})};
      store->PushPull(1, grad, std::span(&out, 1));
      if (store->rank() == 0) results.push_back(Values(out));
    });
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[1], results[2]);
}

TEST(Cluster, PipelinedWorkersMayRunAhead) {
  ClusterOptions options = JobOf(2, 1);
  options.store.staleness = 2;
  Cluster cluster(options);
  const auto first = cluster.Join(0);
  const auto second = cluster.Join(1);
  for (KVStore* store : {first.get(), second.get()}) store->Init("w", Floats({0}));
  for (int i = 0; i < 3; ++i) first->Push("w", Floats({1}));
  EXPECT_EQ(first->Round("w"), 3U);
  const NDArray out = Floats({9});
  first->Pull("w", out);  // does not wait for the slower one
  EXPECT_EQ(Values(out)[0], 0);
}

TEST(Cluster, BadOptionsAreErrors) {
  EXPECT_FAILS(Code::kInvalidArgument, Cluster(JobOf(0, 1)));
  EXPECT_FAILS(Code::kInvalidArgument, Cluster(JobOf(1, 0)));
  ClusterOptions options = JobOf(1, 1);
  options.store.on_death = "mourn";
  EXPECT_FAILS(Code::kInvalidArgument, Cluster{options});
  Cluster cluster(JobOf(1, 1));
  EXPECT_FAILS(Code::kInvalidArgument, cluster.Join(1));
}

}  // namespace
}  // namespace tkv::testing
