// Rows in a distributed store, against a map of what every row has to be.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "base/format.h"
#include "base/random.h"
#include "tests/arrays.h"
#include "tkv/testing.h"

namespace tkv::testing {
namespace {

using test::Floats;
using test::Values;

constexpr int64_t kWidth = 3;

NDArray Ids(const std::vector<int64_t>& ids) {
  const NDArray array = NDArray::Empty(Shape({static_cast<int64_t>(ids.size())}), DType::kI64);
  std::copy(ids.begin(), ids.end(), static_cast<int64_t*>(array.HostData()));
  return array;
}

// Rows of kWidth elements, all of them the number given for the id.
NDArray RowValues(const std::vector<float>& numbers) {
  const NDArray array =
      NDArray::Empty(Shape({static_cast<int64_t>(numbers.size()), kWidth}), DType::kF32);
  auto* const data = static_cast<float*>(array.HostData());
  for (size_t i = 0; i < numbers.size(); ++i) std::fill_n(data + i * kWidth, kWidth, numbers[i]);
  return array;
}

ClusterOptions Options(int workers, int servers, const char* type) {
  ClusterOptions options;
  options.workers = workers;
  options.servers = servers;
  options.type = type;
  options.store.patience = std::chrono::seconds(30);  // a failure ends
  return options;
}

void EachWorker(Cluster* cluster, const std::function<void(KVStore*)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < cluster->workers(); ++rank) {
    threads.emplace_back([cluster, rank, &body] {
      const auto store = cluster->Join(rank);
      body(store.get());
      store->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void InitTable(KVStore* store, uint64_t row_count, const Rows* rows = nullptr,
               RowInitializer initializer = {}) {
  RowsInitItem item{"e", Shape({kWidth}), DType::kF32, row_count, initializer, rows};
  store->InitRows({&item, 1});
}

void Push(KVStore* store, const std::vector<int64_t>& ids, const std::vector<float>& numbers) {
  const Rows rows{Ids(ids), RowValues(numbers)};
  const Rows* const list[] = {&rows};
  const RowsPushItem item{"e", list};
  store->PushRows({&item, 1});
}

std::vector<float> Pull(KVStore* store, const std::vector<int64_t>& ids, bool all = false) {
  const NDArray out = RowValues(std::vector<float>(ids.size(), -1));
  const NDArray asked = Ids(ids);
  const RowsPullItem item{"e", &asked, &out};
  store->PullRows({&item, 1});
  std::vector<float> firsts;
  const std::vector<float> values = Values(out);
  if (all) return values;
  for (size_t i = 0; i < ids.size(); ++i) {
    firsts.push_back(values[i * kWidth]);
    for (int64_t j = 1; j < kWidth; ++j) EXPECT_EQ(values[i * kWidth + j], firsts.back());
  }
  return firsts;
}

// What rank pushes in a round: a few ids, some of them twice.
struct Contribution {
  std::vector<int64_t> ids;
  std::vector<float> numbers;
};
Contribution ContributionOf(uint64_t seed, int rank, int round, int64_t rows) {
  Random random(seed * 1000 + static_cast<uint64_t>(rank) * 100 + static_cast<uint64_t>(round));
  Contribution made;
  const size_t count = random.Next() % 20;
  for (size_t i = 0; i < count; ++i) {
    made.ids.push_back(static_cast<int64_t>(random.Next() % static_cast<uint64_t>(rows)));
    made.numbers.push_back(static_cast<float>(random.Next() % 100));
  }
  return made;
}

class DistRows : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(DistRows, EveryRowIsWhatAMapSays) {
  const auto [workers, servers] = GetParam();
  for (const bool accumulates : {false, true}) {
    Cluster cluster(Options(workers, servers, "dist_sync"));
    EachWorker(&cluster, [&, workers = workers](KVStore* store) {
      constexpr int64_t kRows = 50;
      const Rows first{Ids({7, 3}), RowValues({70, 30})};
      InitTable(store, kRows, &first, {RowInitializer::Kind::kConstant, 5});
      if (accumulates) store->SetOptimizer(Optimizer::Create("test"));
      std::map<int64_t, float> truth = {{7, 70}, {3, 30}};
      const auto valued = [&](int64_t id) { return truth.contains(id) ? truth[id] : 5.0F; };
      for (int round = 0; round < 20; ++round) {
        std::map<int64_t, float> sum;
        for (int rank = 0; rank < workers; ++rank) {
          const Contribution part = ContributionOf(1, rank, round, kRows);
          for (size_t i = 0; i < part.ids.size(); ++i) sum[part.ids[i]] += part.numbers[i];
        }
        const Contribution mine = ContributionOf(1, store->rank(), round, kRows);
        Push(store, mine.ids, mine.numbers);
        for (const auto& [id, number] : sum) truth[id] = number + (accumulates ? valued(id) : 0);
        const std::vector<int64_t> asked = ContributionOf(2, store->rank(), round, kRows).ids;
        const std::vector<float> found = Pull(store, asked);
        for (size_t i = 0; i < asked.size(); ++i) ASSERT_EQ(found[i], valued(asked[i]));
        EXPECT_EQ(store->Round("e"), static_cast<uint64_t>(round) + 1);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, DistRows,
                         ::testing::Values(std::pair(1, 1), std::pair(2, 1), std::pair(2, 2),
                                           std::pair(3, 3)));

TEST(DistRows, AsynchronousPushesAllCount) {
  Cluster cluster(Options(2, 2, "dist_async"));
  EachWorker(&cluster, [&](KVStore* store) {
    InitTable(store, kRowsMax);
    store->SetOptimizer(Optimizer::Create("test"));
    store->Barrier();
    const int64_t far = static_cast<int64_t>(kRowsMax - 1);
    for (int i = 0; i < 50; ++i) Push(store, {1, far, 1}, {1, 2, 3});
    Pull(store, {1});
    store->Barrier();
    EXPECT_EQ(Pull(store, {far, 1, 2}), (std::vector<float>{200, 400, 0}));
  });
}

TEST(DistRows, AWholeArrayIsAllRows) {
  Cluster cluster(Options(2, 2, "dist_sync"));
  EachWorker(&cluster, [&](KVStore* store) {
    InitTable(store, 4);
    store->Push("e", RowValues({1, 2, 3, 4}));
    const NDArray out = RowValues({0, 0, 0, 0});
    store->Pull("e", out);
    EXPECT_EQ(Values(out), Values(RowValues({2, 4, 6, 8})));
    EXPECT_TRUE(store->Describe("e").by_rows);
  });
}

// Rows that lie across two chunks, and a lazy optimizer, which leaves what no push brings.
TEST(DistRows, RowsPushedOntoADenseKeyAreItsElements) {
  constexpr int64_t kRows = 7;
  constexpr int64_t kLong = 100'000;
  for (const bool is_lazy : {true, false}) {
    Cluster cluster(Options(2, 2, "dist_sync"));
    EachWorker(&cluster, [&](KVStore* store) {
      store->Init("d", test::Full({kRows, kLong}, 1));
      const std::map<std::string, double> params = {{"learning_rate", 1}, {"wd", 0.5}};
      store->SetOptimizer(Optimizer::Create("sgd", params, false, is_lazy));
      const std::vector<int64_t> ids = {store->rank(), 5, 5};
      const Rows rows{Ids(ids), test::Full({3, kLong}, 0.25)};
      const Rows* const list[] = {&rows};
      const RowsPushItem item{"d", list};
      store->PushRows({&item, 1});
      const NDArray out = test::Full({kRows, kLong}, 0);
      store->Pull("d", out);
      const std::vector<float> all = Values(out);
      const std::vector<float> wanted = {0.25, 0.25, 0.5, 0.5, 0.5, -0.5, 0.5};
      for (int64_t row = 0; row < kRows; ++row) {
        const bool is_pushed = row < 2 || row == 5;
        const float value = is_pushed || !is_lazy ? wanted[row] : 1.0F;
        for (int64_t i = 0; i < kLong; ++i) ASSERT_EQ(all[row * kLong + i], value) << row;
      }
    });
  }
}

TEST(DistRows, WithoutAnOptimizerTheSumOfRowsTakesThePlaceOfADenseValue) {
  Cluster cluster(Options(2, 2, "dist_sync"));
  EachWorker(&cluster, [&](KVStore* store) {
    store->Init("d", test::Full({3, 2}, 9, DType::kF16));
    const Rows rows{Ids({1}), test::Full({1, 2}, 2, DType::kF16)};
    const Rows* const list[] = {&rows};
    const RowsPushItem item{"d", list};
    store->PushRows({&item, 1});
    const NDArray out = test::Full({3, 2}, 0);
    store->Pull("d", out);
    EXPECT_EQ(Values(out), (std::vector<float>{0, 0, 4, 4, 0, 0}));
  });
}

// What two steps of all workers leave, from the beginning or from a snapshot.
TEST(DistRows, SnapshotsGoToOtherServersAndToOneProcess) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  constexpr int64_t kRows = 500;
  std::vector<int64_t> all(kRows);
  for (int64_t id = 0; id < kRows; ++id) all[static_cast<size_t>(id)] = id;
  const auto step = [&](KVStore* store, int workers, int number) {
    for (int rank = 0; rank < workers; ++rank) {  // a store of one process does the work of all
      const Contribution part = ContributionOf(3, rank, number, kRows);
      if (store->num_workers() == workers && rank != store->rank()) continue;
      Push(store, part.ids, part.numbers);
    }
  };
  for (const char* optimizer : {"momentum", "nadam"}) {
    const std::string path = (folder / optimizer).string();
    std::vector<float> then, expected;
    {
      Cluster cluster(Options(1, 2, "dist_sync"));
      EachWorker(&cluster, [&](KVStore* store) {
        InitTable(store, kRows, nullptr, {RowInitializer::Kind::kNormal, 0, 1, 5});
        store->SetOptimizer(Optimizer::Create(optimizer));
        for (int number = 0; number < 5; ++number) step(store, 1, number);
        store->Save(path);
        then = Pull(store, all, true);
        step(store, 1, 5);
        expected = Pull(store, all, true);
      });
    }
    EXPECT_NE(then, expected);
    const auto goes_on = [&](KVStore* store) {
      EXPECT_EQ(store->Restore(path).rounds.at(0).second, 5U);
      EXPECT_EQ(Pull(store, all, true), then);
      step(store, 1, 5);
      EXPECT_EQ(Pull(store, all, true), expected) << optimizer;
    };
    for (const int servers : {1, 2, 3}) {
      Cluster cluster(Options(1, servers, "dist_sync"));
      EachWorker(&cluster, goes_on);
    }
    const auto local = KVStore::Create("local");
    goes_on(local.get());
    local->Save(path);
    Cluster cluster(Options(2, 3, "dist_sync"));
    EachWorker(&cluster, [&](KVStore* store) {
      EXPECT_EQ(store->Restore(path).rounds.at(0).second, 6U);
      EXPECT_EQ(Pull(store, all, true), expected);
      store->Barrier();
      Push(store, {1}, {1});
      Pull(store, {1}, true);
      store->Save(path);
      store->Barrier();
      Push(store, {2}, {1});
      store->Load(path);
      EXPECT_EQ(store->Round("e"), 7U);
    });
  }
  std::filesystem::remove_all(folder);
}

std::string WhyNot(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DistRows, TheSeedIsThatOfRankZero) {
  using Kind = RowInitializer::Kind;
  Cluster cluster(Options(3, 2, "dist_sync"));
  std::vector<std::vector<float>> seen(3);
  EachWorker(&cluster, [&](KVStore* store) {
    const auto rank = static_cast<size_t>(store->rank());
    RowsInitItem item{"e", Shape({kWidth}), DType::kF32, 10, {Kind::kUniform, -1, 1, 7 + rank}};
    store->InitRows({&item, 1});
    const NDArray out = RowValues({0, 0});
    const NDArray ids = Ids({4, 2});
    const RowsPullItem pull{"e", &ids, &out};
    store->PullRows({&pull, 1});
    seen[rank] = Values(out);
    item.key = "f";
    item.initializer = {Kind::kNormal, 0, rank == 0 ? 0.5 : 0.25, rank};
    const std::string why = WhyNot([&] { store->InitRows({&item, 1}); });
    EXPECT_EQ(why,
              rank == 0
                  ? ""
                  : "init 'f': rows begin as normal(0, 0.25) here, as normal(0, 0.5) in the store");
    item.key = "g";
    item.row_count = 10 + rank;
    item.initializer = {Kind::kConstant, 2};
    const std::string counted = WhyNot([&] { store->InitRows({&item, 1}); });
    EXPECT_EQ(counted,
              rank == 0 ? "" : Format("init 'g': {} rows here, 10 in the store", 10 + rank));
    store->Barrier();
  });
  EXPECT_NE(seen[0][0], seen[0][1]);
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
}

TEST(DistRows, WhatIsWrongChangesNothing) {
  Cluster cluster(Options(1, 2, "dist_sync"));
  EachWorker(&cluster, [&](KVStore* store) {
    InitTable(store, 10);
    store->Init("d", Floats({1, 2}));
    Push(store, {3}, {1});
    EXPECT_EQ(WhyNot([&] { Push(store, {1, 10}, {1, 1}); }),
              "push 'e': id 10 at position 1, the key has ids below 10");
    EXPECT_NE(WhyNot([&] { Push(store, {-1}, {1}); }), "");
    EXPECT_EQ(WhyNot([&] { Push(store, {1, 2}, {1}); }),
              "push 'e': values have shape (1, 3), 2 ids of this key need (2, 3)");
    EXPECT_NE(WhyNot([&] { Pull(store, {10}); }), "");
    EXPECT_EQ(store->Round("e"), 1u);
    EXPECT_EQ(Pull(store, {3, 1, 3}), (std::vector<float>{1, 0, 1}));
    EXPECT_EQ(Pull(store, {}), std::vector<float>());
    const NDArray ids = Ids({0});
    const NDArray out = RowValues({0});
    const RowsPullItem item{"d", &ids, &out};
    EXPECT_NE(WhyNot([&] { store->PullRows({&item, 1}); }), "");
  });
}

}  // namespace
}  // namespace tkv::testing
