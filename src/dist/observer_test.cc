// Observers read, come and go, and no round ever waits for one.

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/arrays.h"
#include "tests/cluster_fixture.h"

namespace tkv::testing {
namespace {

using test::Floats;
using test::JobOf;
using test::Values;

template <typename F>
std::string Why(Code code, F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Observer, ReadsWhatWorkersHaveMadeAndSeesWhichRoundThatIs) {
  Cluster cluster(JobOf(1, 2));
  const auto worker = cluster.Join(0);
  const auto observer = cluster.Observe();
  EXPECT_EQ(observer->type(), "observer");
  EXPECT_EQ(observer->rank(), -1);
  EXPECT_EQ(observer->num_workers(), 1);
  EXPECT_EQ(observer->size(), 0U);
  EXPECT_FALSE(observer->Contains("w"));
  const NDArray out = Floats({0, 0});
  EXPECT_NE(Why(Code::kNotFound, [&] { observer->Pull("w", out); }).find("pull 'w': no such key"),
            std::string::npos);
  worker->Init("w", Floats({1, 2}));
  worker->Init("v", Floats({5}));
  EXPECT_EQ(observer->Keys(), (std::vector{Key("v"), Key("w")}));
  EXPECT_EQ(observer->Describe("w").shape, Shape({2}));
  EXPECT_TRUE(observer->Contains("w"));
  EXPECT_EQ(observer->Round("w"), 0U);
  observer->Pull("w", out);
  EXPECT_EQ(Values(out), (std::vector<float>{1, 2}));
  EXPECT_EQ(observer->Round("w"), 0U);
  for (int round = 1; round <= 3; ++round) {
    worker->Push("w", Floats({10, static_cast<float>(round)}));
    worker->Barrier();
    observer->Pull("w", out);
    EXPECT_EQ(Values(out)[1], static_cast<float>(round));
    EXPECT_EQ(observer->Round("w"), static_cast<uint64_t>(round));
  }
  observer->Close();
  worker->Push("w", Floats({0, 9}));
  worker->Close();
}

TEST(Observer, ReadsRows) {
  Cluster cluster(JobOf(1, 2));
  const auto worker = cluster.Join(0);
  RowsInitItem table{.key = "t", .row_shape = Shape({1}), .row_count = 100};
  worker->InitRows({&table, 1});
  const auto ids = NDArray::Empty(Shape({2}), DType::kI64);
  auto* const id = static_cast<int64_t*>(ids.HostData());
  id[0] = 7;
  id[1] = 70;
  const Rows rows{ids, NDArray::Empty(Shape({2, 1}), DType::kF32)};
  static_cast<float*>(rows.values.HostData())[0] = 1;
  static_cast<float*>(rows.values.HostData())[1] = 2;
  const Rows* const values[] = {&rows};
  const RowsPushItem push{"t", values};
  worker->PushRows({&push, 1});
  worker->Barrier();
  const auto observer = cluster.Observe();
  const NDArray out = NDArray::Empty(Shape({2, 1}), DType::kF32);
  const RowsPullItem pull{"t", &ids, &out};
  observer->PullRows({&pull, 1}, "pull_rows");
  EXPECT_EQ(Values(out), (std::vector<float>{1, 2}));
  EXPECT_TRUE(observer->Describe("t").by_rows);
  EXPECT_EQ(observer->StatsOfTable("t").rows, 2U);
}

TEST(Observer, ChangesNothing) {
  Cluster cluster(JobOf(1, 1));
  const auto worker = cluster.Join(0);
  worker->Init("w", Floats({1}));
  const auto observer = cluster.Observe();
  const NDArray one = Floats({1});
  for (const auto& [verb, call] : std::vector<std::pair<std::string, std::function<void()>>>{
           {"init", [&] { observer->Init("x", one); }},
           {"push", [&] { observer->Push("w", one); }},
           {"pushpull", [&] { observer->PushPull("w", {&one, 1}, {&one, 1}); }},
           {"delete", [&] { observer->Delete("w"); }},
           {"barrier", [&] { observer->Barrier(); }},
           {"save", [&] { observer->Save("/nowhere"); }},
           {"load", [&] { observer->Load("/nowhere"); }},
           {"set_updater", [&] { observer->SetUpdater({}); }},
           {"trace", [&] { observer->StartTrace(); }}}) {
    const std::string why = Why(Code::kFailedPrecondition, call);
    EXPECT_EQ(why.find(verb + ": this store is an observer's"), 0U) << why;
  }
  observer->Close();
  EXPECT_NE(Why(Code::kFailedPrecondition, [&] { observer->Push("w", one); }).find("closed"),
            std::string::npos);
}

TEST(Observer, FindsAKeyThatHasBeenMadeAnew) {
  Cluster cluster(JobOf(1, 2));
  const auto worker = cluster.Join(0);
  worker->Init("w", Floats({1}));
  const auto observer = cluster.Observe();
  const NDArray out = Floats({0});
  observer->Pull("w", out);
  worker->Delete("w");
  worker->Init("w", Floats({5, 6}));
  EXPECT_NE(Why(Code::kFailedPrecondition, [&] { observer->Pull("w", out); }), "");
  const NDArray two = Floats({0, 0});
  observer->Pull("w", two);
  EXPECT_EQ(Values(two), (std::vector<float>{5, 6}));
  worker->Delete("w");
  EXPECT_NE(Why(Code::kNotFound, [&] { observer->Pull("w", two); }), "");
  EXPECT_FALSE(observer->Contains("w"));
}

TEST(Observer, LooksAtTheStoreThatItIsToldOf) {
  Cluster cluster(JobOf(1, 1));
  const auto worker = cluster.Join(0);
  worker->Init("w", Floats({1}));
  const auto other = cluster.Observe(1);
  EXPECT_EQ(other->size(), 0U);
  EXPECT_FALSE(other->Contains("w"));
}

TEST(Observer, SeesWhoIsWaitedFor) {
  Cluster cluster(JobOf(2, 2));
  const auto first = cluster.Join(0);
  const auto second = cluster.Join(1);
  std::thread other([&] { second->Init("w", Floats({0, 0})); });
  first->Init("w", Floats({0, 0}));
  other.join();
  const auto observer = cluster.Observe();
  JobStatus status = observer->Status();
  EXPECT_EQ(status.wrong(), "");
  EXPECT_EQ(status.workers.size(), 2U);
  EXPECT_EQ(status.workers[1].state, "alive");
  EXPECT_EQ(status.servers.size(), 2U);
  EXPECT_EQ(status.observers, 1U);
  EXPECT_EQ(status.slowest, -1);
  ASSERT_EQ(status.keys.size(), 1U);
  EXPECT_EQ(status.keys[0].key, Key("w"));
  EXPECT_EQ(status.keys[0].bytes, 8U);
  EXPECT_EQ(status.keys[0].round, 0U);
  const NDArray pushed = Floats({3, 4});
  first->Push("w", pushed);
  do {  // until the server has it
    status = observer->Status();
  } while (status.rounds.empty());
  ASSERT_EQ(status.rounds.size(), 1U);
  EXPECT_EQ(status.rounds[0].key, "'w'");
  EXPECT_EQ(status.rounds[0].round, 1U);
  EXPECT_EQ(status.rounds[0].waits_for, std::vector{1});
  EXPECT_GT(status.rounds[0].seconds, 0);
  EXPECT_EQ(status.slowest, 1);
  EXPECT_EQ(status.workers[0].pushes, 1U);
  EXPECT_EQ(status.workers[0].pushed_bytes, 8U);
  second->Push("w", pushed);
  std::thread closing([&] { first->Barrier(); });
  second->Barrier();
  closing.join();
  status = observer->Status();
  EXPECT_TRUE(status.rounds.empty());
  EXPECT_EQ(status.keys[0].round, 1U);
}

TEST(Observer, AWorkersStoreSaysHowTheJobIsAsWell) {
  Cluster cluster(JobOf(1, 2));
  const auto worker = cluster.Join(0);
  worker->Init("w", Floats({0}));
  EXPECT_EQ(worker->Status().keys.size(), 1U);
  cluster.KillServer(1);
  const JobStatus status = worker->Status();
  EXPECT_NE(status.wrong(), "");
  EXPECT_NE(status.servers[1].error, "");
  const auto local = KVStore::Create("local");
  EXPECT_NE(Why(Code::kFailedPrecondition, [&] { local->Status(); }), "");
}

}  // namespace
}  // namespace tkv::testing
