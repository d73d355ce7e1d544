// Rows in a distributed store, compared with a map of the expected rows.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <thread>

#include "base/format.h"
#include "base/random.h"
#include "tests/arrays.h"
#include "tests/cluster_fixture.h"

namespace tkv::testing {
namespace {

using test::EachWorker;
using test::Floats;
using test::JobOf;
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

void InitTable(KVStore* store, uint64_t row_count, const Rows* rows = nullptr,
               RowInitializer initializer = {}, bool replaces_all = false) {
  RowsInitItem item{"e", Shape({kWidth}), DType::kF32, row_count, initializer, rows};
  item.policy.replaces_all = replaces_all;
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

// The rows that a rank pushes in a round: a few ids, some of them twice.
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

std::string WhyNot(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class DistRows : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(DistRows, EveryRowIsWhatAMapSays) {
  const auto [workers, servers] = GetParam();
  enum class Pushes { kAssign, kReplaceAll, kAccumulate };
  for (const Pushes pushes : {Pushes::kAssign, Pushes::kReplaceAll, Pushes::kAccumulate}) {
    const bool accumulates = pushes == Pushes::kAccumulate;
    const bool replaces_all = pushes == Pushes::kReplaceAll;
    Cluster cluster(JobOf(workers, servers, "dist_sync"));
    EachWorker(&cluster, [&, workers = workers](KVStore* store) {
      constexpr int64_t kRows = 50;
      const Rows first{Ids({7, 3}), RowValues({70, 30})};
      InitTable(store, kRows, &first, {RowInitializer::Kind::kConstant, 5}, replaces_all);
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
        if (replaces_all) truth.clear();
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

// Only the lowest rank reads all of the snapshot.
TEST(DistRows, NoRankCreatesKeysOfASnapshotThatIsDamaged) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  std::string saved;
  {
    Cluster cluster(JobOf(1, 2, "dist_sync"));
    EachWorker(&cluster, [&](KVStore* store) {
      InitTable(store, 50);
      Push(store, {7}, {70});
      saved = store->Save((folder / "snapshots").string());
    });
  }
  const std::filesystem::path good = folder / "good";
  std::filesystem::copy(saved, good, std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::directory_iterator(saved)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  Cluster cluster(JobOf(3, 2, "dist_sync"));
  EachWorker(&cluster, [&](KVStore* store) {
    const auto failure = test::FailureOf([&] { store->Restore(saved); });
    EXPECT_EQ(failure.code, Code::kDataLoss) << failure.message;
    EXPECT_EQ(store->size(), 0U);
    store->Restore(good.string());
    EXPECT_EQ(Pull(store, {7, 8}), (std::vector<float>{70, 0}));
  });
  std::filesystem::remove_all(folder);
}

TEST(DistRows, AsynchronousPushesAllCount) {
  Cluster cluster(JobOf(2, 2, "dist_async"));
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

TEST(DistRows, EachAsynchronousPushReplacesAllRows) {
  Cluster cluster(JobOf(2, 2, "dist_async"));
  EachWorker(&cluster, [&](KVStore* store) {
    InitTable(store, 50, nullptr, {}, true);
    for (int64_t turn = 0; turn < 2; ++turn) {
      store->Barrier();
      if (store->rank() == turn) {
        Push(store, {1, 2, 3, 4, 5, 6, 7, 8}, std::vector<float>(8, 9));
        Push(store, {10 + turn, 20}, {1, 2});
        Pull(store, {1});
      }
      store->Barrier();
      const std::vector<float> all = Pull(store, {1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 20});
      EXPECT_EQ(std::accumulate(all.begin(), all.end(), 0.0F), 3.0F);
      EXPECT_EQ(Pull(store, {10 + turn, 20}), (std::vector<float>{1, 2}));
      EXPECT_EQ(store->StatsOfTable("e").rows, 2U);
    }
    store->Barrier();
  });
}

TEST(DistRows, WhetherAPushReplacesAllRowsIsTheSameOnEachRank) {
  Cluster cluster(JobOf(2, 2, "dist_sync"));
  EachWorker(&cluster, [&](KVStore* store) {
    const std::string why = WhyNot([&] { InitTable(store, 50, nullptr, {}, store->rank() == 0); });
    EXPECT_EQ(why, store->rank() == 0
                       ? ""
                       : "init_table 'e': made by init_table here, by init in the store");
    store->Barrier();
  });
}

TEST(DistRows, AWholeArrayIsAllRows) {
  Cluster cluster(JobOf(2, 2, "dist_sync"));
  EachWorker(&cluster, [&](KVStore* store) {
    InitTable(store, 4);
    store->Push("e", RowValues({1, 2, 3, 4}));
    const NDArray out = RowValues({0, 0, 0, 0});
    store->Pull("e", out);
    EXPECT_EQ(Values(out), Values(RowValues({2, 4, 6, 8})));
    EXPECT_TRUE(store->Describe("e").by_rows);
  });
}

// Rows that span two chunks, and a lazy optimizer, which leaves rows without a push alone.
TEST(DistRows, RowsPushedOntoADenseKeyAreItsElements) {
  constexpr int64_t kRows = 7;
  constexpr int64_t kLong = 100'000;
  for (const bool is_lazy : {true, false}) {
    Cluster cluster(JobOf(2, 2, "dist_sync"));
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
  Cluster cluster(JobOf(2, 2, "dist_sync"));
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

// The rows after two steps of all workers are the same from the beginning and from a snapshot.
TEST(DistRows, SnapshotsGoToOtherServersAndToOneProcess) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  constexpr int64_t kRows = 500;
  std::vector<int64_t> all(kRows);
  for (int64_t id = 0; id < kRows; ++id) all[static_cast<size_t>(id)] = id;
  const auto step = [&](KVStore* store, int workers, int number) {
    // A store of one process does the work of all.
    for (int rank = 0; rank < workers; ++rank) {
      const Contribution part = ContributionOf(3, rank, number, kRows);
      if (store->num_workers() == workers && rank != store->rank()) continue;
      Push(store, part.ids, part.numbers);
    }
  };
  for (const char* optimizer : {"momentum", "nadam"}) {
    const std::string path = (folder / optimizer).string();
    std::vector<float> then, expected;
    {
      Cluster cluster(JobOf(1, 2, "dist_sync"));
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
      Cluster cluster(JobOf(1, servers, "dist_sync"));
      EachWorker(&cluster, goes_on);
    }
    const auto local = KVStore::Create("local");
    goes_on(local.get());
    local->Save(path);
    Cluster cluster(JobOf(2, 3, "dist_sync"));
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

TEST(DistRows, TheSeedIsThatOfRankZero) {
  using Kind = RowInitializer::Kind;
  Cluster cluster(JobOf(3, 2, "dist_sync"));
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
    EXPECT_EQ(
        why,
        rank == 0
            ? ""
            : "init_table 'f': rows begin as normal(0, 0.25) here, as normal(0, 0.5) in the store");
    item.key = "g";
    item.row_count = 10 + rank;
    item.initializer = {Kind::kConstant, 2};
    const std::string counted = WhyNot([&] { store->InitRows({&item, 1}); });
    EXPECT_EQ(counted,
              rank == 0 ? "" : Format("init_table 'g': {} rows here, 10 in the store", 10 + rank));
    store->Barrier();
  });
  EXPECT_NE(seen[0][0], seen[0][1]);
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
}

TEST(DistRows, WhatIsWrongChangesNothing) {
  Cluster cluster(JobOf(1, 2, "dist_sync"));
  EachWorker(&cluster, [&](KVStore* store) {
    InitTable(store, 10);
    store->Init("d", Floats({1, 2}));
    Push(store, {3}, {1});
    EXPECT_EQ(WhyNot([&] { Push(store, {1, 10}, {1, 1}); }),
              "push_rows 'e': id 10 at position 1, the key has ids below 10");
    EXPECT_NE(WhyNot([&] { Push(store, {-1}, {1}); }), "");
    EXPECT_EQ(WhyNot([&] { Push(store, {1, 2}, {1}); }),
              "push_rows 'e': values have shape (1, 3), 2 ids of this key need (2, 3)");
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

// ---- policies, export and import ----------------------------------------------------------------

void InitKept(KVStore* store, const RowPolicy& policy) {
  RowsInitItem item{
      "e", Shape({kWidth}), DType::kF32, kRowsMax, {RowInitializer::Kind::kConstant, 5}};
  item.policy = policy;
  store->InitRows({&item, 1});
}

// Pushes the contributions of all workers in a round as one push.
void PushAll(KVStore* store, int workers, uint64_t seed, int round, int64_t rows) {
  std::vector<Rows> parts;
  for (int rank = 0; rank < workers; ++rank) {
    const Contribution part = ContributionOf(seed, rank, round, rows);
    parts.push_back({Ids(part.ids), RowValues(part.numbers)});
  }
  std::vector<const Rows*> list;
  for (const Rows& part : parts) list.push_back(&part);
  const RowsPushItem item{"e", list};
  store->PushRows({&item, 1});
}

void ExpectSameExport(KVStore* one, KVStore* other, const RowsFilter& filter) {
  const RowsExport a = one->ExportRows("e", filter);
  const RowsExport b = other->ExportRows("e", filter);
  EXPECT_EQ(a.version, b.version);
  ASSERT_EQ(a.rows.ids.shape(), b.rows.ids.shape());
  const auto* const ids_a = static_cast<const int64_t*>(a.rows.ids.HostData());
  const auto* const ids_b = static_cast<const int64_t*>(b.rows.ids.HostData());
  for (int64_t i = 0; i < a.rows.ids.size(); ++i) ASSERT_EQ(ids_a[i], ids_b[i]);
  EXPECT_EQ(Values(a.rows.values), Values(b.rows.values));
}

// A job's table is the same as that of one process with the same pushes, for any number of servers.
TEST_P(DistRows, APolicyKeepsTheSameRowsInAJobAndInOneProcess) {
  const auto [workers, servers] = GetParam();
  constexpr int64_t kRows = 60;
  std::vector<int64_t> all(kRows);
  for (int64_t id = 0; id < kRows; ++id) all[static_cast<size_t>(id)] = id;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    RowPolicy policy;
    policy.has_notes = true;
    policy.admit_count = static_cast<uint32_t>(1 + seed % 3);
    policy.age_max = seed % 2 == 0 ? 0 : 4;
    Cluster cluster(JobOf(workers, servers, "dist_sync"));
    EachWorker(&cluster, [&, workers = workers](KVStore* store) {
      const auto twin = KVStore::Create("local");
      InitKept(store, policy);
      InitKept(twin.get(), policy);
      const char* const optimizer = seed < 3 ? "momentum" : "test";
      store->SetOptimizer(Optimizer::Create(optimizer));
      twin->SetOptimizer(Optimizer::Create(optimizer));
      uint64_t before = 0;
      for (int round = 0; round < 15; ++round) {
        const Contribution mine = ContributionOf(seed, store->rank(), round, kRows);
        Push(store, mine.ids, mine.numbers);
        PushAll(twin.get(), workers, seed, round, kRows);
        ASSERT_EQ(Pull(store, all, true), Pull(twin.get(), all, true)) << "round " << round;
        store->Barrier();
        if (store->rank() == 0 && round % 3 == 2) {
          ASSERT_NO_FATAL_FAILURE(ExpectSameExport(store, twin.get(), {}));
          ASSERT_NO_FATAL_FAILURE(ExpectSameExport(store, twin.get(), {10, 40}));
          ASSERT_NO_FATAL_FAILURE(ExpectSameExport(store, twin.get(), {5, kRowsMax, before}));
          const TableStats stats = store->StatsOfTable("e");
          EXPECT_EQ(stats.version, static_cast<uint64_t>(round) + 1);
          before = stats.version;
          if (policy.age_max == 0) {
            EXPECT_EQ(stats.rows, twin->StatsOfTable("e").rows);
            EXPECT_EQ(stats.candidates, twin->StatsOfTable("e").candidates);
          }
        }
        store->Barrier();
      }
    });
  }
}

// Ages and counts continue with the values in a snapshot.
TEST(DistRows, ASnapshotHasWhatIsNotedOfRowsAndCandidates) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  constexpr int64_t kRows = 200;
  std::vector<int64_t> all(kRows);
  for (int64_t id = 0; id < kRows; ++id) all[static_cast<size_t>(id)] = id;
  RowPolicy policy;
  policy.admit_count = 3;
  policy.age_max = 20;
  const auto twin = KVStore::Create("local");
  InitKept(twin.get(), policy);
  int round = 0;
  const auto step = [&](KVStore* store) {
    for (int i = 0; i < 12; ++i) PushAll(store, 1, 9, round + i, kRows);
  };
  step(twin.get());
  const auto first = KVStore::Create("local");
  InitKept(first.get(), policy);
  step(first.get());
  first->Save((folder / "0").string());
  EXPECT_GT(first->StatsOfTable("e").candidates, 20U);
  for (const int servers : {2, 3, 1}) {
    const std::string from = (folder / std::to_string(round / 12)).string();
    round += 12;
    const std::string to = (folder / std::to_string(round / 12)).string();
    step(twin.get());
    Cluster cluster(JobOf(1, servers, "dist_sync"));
    EachWorker(&cluster, [&](KVStore* store) {
      store->Restore(from);
      step(store);
      EXPECT_EQ(Pull(store, all, true), Pull(twin.get(), all, true)) << servers;
      ASSERT_NO_FATAL_FAILURE(ExpectSameExport(store, twin.get(), {}));
      store->Save(to);
    });
  }
  const auto last = KVStore::Create("local");
  last->Restore((folder / std::to_string(round / 12)).string());
  ASSERT_NO_FATAL_FAILURE(ExpectSameExport(last.get(), twin.get(), {}));
  std::filesystem::remove_all(folder);
}

TEST(DistRows, ATableOfSoManyRowsHasNoMoreInAnyBucket) {
  RowPolicy policy;
  policy.rows_max = 80;
  policy.score = RowPolicy::Score::kCount;
  Cluster cluster(JobOf(1, 2, "dist_async"));
  EachWorker(&cluster, [&](KVStore* store) {
    InitKept(store, policy);
    for (int64_t i = 0; i < 40; ++i) {
      // Pushed more often than any other row.
      std::vector<int64_t> ids = {1, 2, 3};
      for (int64_t id = 0; id < 20; ++id) ids.push_back(1000 + 20 * i + id);
      Push(store, ids, std::vector<float>(ids.size(), 1));
    }
    Pull(store, {1});
    const TableStats stats = store->StatsOfTable("e");
    EXPECT_LE(stats.rows, 80U);
    EXPECT_GT(stats.rows, 40U);
    EXPECT_EQ(stats.rows + stats.evicted, 803U);
    EXPECT_EQ(Pull(store, {1, 2, 3}), (std::vector<float>{1, 1, 1}));
  });
}

TEST(DistRows, ImportedRowsBeginAnew) {
  for (const char* type : {"local", "dist_sync", "dist_async"}) {
    const auto check = [&](KVStore* store) {
      RowPolicy policy;
      policy.admit_count = 2;
      policy.has_notes = true;
      InitKept(store, policy);
      store->SetOptimizer(Optimizer::Create("momentum", {{"learning_rate", 1}, {"momentum", 0.5}}));
      for (int i = 0; i < 3; ++i) Push(store, {1, 2}, {1, 1});
      const std::vector<float> pushed = Pull(store, {1, 2, 3});
      const RowsExport before = store->ExportRows("e");
      store->ImportRows("e", {Ids({2, 3}), RowValues({20, 30})});
      EXPECT_EQ(Pull(store, {1, 2, 3}), (std::vector<float>{pushed[0], 20, 30})) << type;
      const RowsExport since = store->ExportRows("e", {0, kRowsMax, before.version});
      EXPECT_EQ(since.rows.ids.size(), 2);
      EXPECT_EQ(since.version, 3U);
      // Without momentum, and without being admitted.
      Push(store, {2, 3}, {1, 1});
      EXPECT_EQ(Pull(store, {2, 3}), (std::vector<float>{19, 29})) << type;
      store->ImportRows("e", {Ids({}), RowValues({})});
    };
    if (std::string_view(type) == "local") {
      check(KVStore::Create("local").get());
      continue;
    }
    Cluster cluster(JobOf(1, 2, type));
    EachWorker(&cluster, check);
  }
}

// A table's own optimizer stays when the store gets another one, and its hyperparameters may
// change.
TEST(DistRows, ATableMayHaveAnOptimizerOfItsOwn) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  const auto program = [](KVStore* store, const std::shared_ptr<Optimizer>& own, bool restored) {
    if (!restored) {
      for (const bool has_own : {true, false}) {
        RowsInitItem item{has_own ? "own" : "e", Shape({kWidth}), DType::kF32, 50};
        if (has_own) item.optimizer = own;
        store->InitRows({&item, 1});
      }
      store->Init("d", Floats({8, 8}));
      store->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 1}}));
    }
    std::vector<std::vector<float>> seen;
    for (int round = 0; round < 8; ++round) {
      if (round == 4) own->SetParam("learning_rate", 0.25);
      const NDArray ids = Ids({3, 4, round}), values = RowValues({1, 2, 4});
      const Rows rows{ids, values};
      const Rows* const list[] = {&rows};
      const RowsPushItem items[] = {{"own", list}, {"e", list}};
      const NDArray ones = Floats({1, 1});
      const NDArray* const arrays[] = {&ones};
      const PushItem whole{"d", arrays};
      if (round % 2 == 0) {
        store->PushRows(items, {&whole, 1});
      } else {
        store->PushRows(items);
        store->Push("d", ones);
      }
      const PushItem both{"e", arrays};
      EXPECT_NE(WhyNot([&] { store->PushRows(items, {&both, 1}); }), "");
      const NDArray out = RowValues(std::vector<float>(10));
      std::vector<int64_t> all(10);
      for (int64_t id = 0; id < 10; ++id) all[static_cast<size_t>(id)] = id;
      const NDArray asked = Ids(all);
      for (const char* key : {"own", "e"}) {
        const RowsPullItem item{key, &asked, &out};
        store->PullRows({&item, 1});
        seen.push_back(Values(out));
      }
      const NDArray dense = Floats({0, 0});
      store->Pull("d", dense);
      seen.push_back(Values(dense));
    }
    return seen;
  };
  const auto own = [] { return Optimizer::Create("adagrad", {{"learning_rate", 0.5}}); };
  const auto local = KVStore::Create("local");
  const auto wanted = program(local.get(), own(), false);
  EXPECT_NE(wanted[0], wanted[1]);
  EXPECT_EQ(wanted[1][9], -1);  // row 3 by plain SGD
  for (const char* type : {"dist_sync", "dist_async"}) {
    Cluster cluster(JobOf(1, 2, type));
    EachWorker(&cluster, [&](KVStore* store) {
      EXPECT_EQ(program(store, own(), false), wanted) << type;
      store->Save((folder / type).string());
    });
  }
  local->Save((folder / "local").string());
  const auto later = program(local.get(), own(), true);
  for (const char* saved : {"local", "dist_sync"}) {
    const auto again = KVStore::Create("local");
    again->Restore((folder / saved).string());
    const auto its = Optimizer::Create("sgd", {{"learning_rate", 1}});
    Cluster cluster(JobOf(1, 3, "dist_sync"));
    EachWorker(&cluster, [&](KVStore* store) {
      store->Restore((folder / saved).string());
      EXPECT_EQ(Pull(store, {3, 4}), Pull(again.get(), {3, 4}));
      const Rows rows{Ids({3}), RowValues({1})};
      const Rows* const list[] = {&rows};
      const RowsPushItem item{"own", list};
      const NDArray ids = Ids({3}), one = RowValues({0}), other = RowValues({0});
      const RowsPullItem from{"own", &ids, &one}, from_other{"own", &ids, &other};
      store->PushRows({&item, 1});
      again->PushRows({&item, 1});
      store->PullRows({&from, 1});
      again->PullRows({&from_other, 1});
      EXPECT_EQ(Values(one), Values(other)) << saved;
    });
  }
  Cluster cluster(JobOf(2, 2, "dist_sync"));
  EachWorker(&cluster, [&](KVStore* store) {
    RowsInitItem item{"e", Shape({kWidth}), DType::kF32, 10};
    item.optimizer = Optimizer::Create(store->rank() == 0 ? "sgd" : "adam");
    const std::string why = WhyNot([&] { store->InitRows({&item, 1}); });
    EXPECT_EQ(why, store->rank() == 0
                       ? ""
                       : "init_table 'e': the key's own optimizer is another one in the store");
    item.key = "f";
    item.optimizer = store->rank() == 0 ? Optimizer::Create("sgd") : nullptr;
    EXPECT_EQ(
        WhyNot([&] { store->InitRows({&item, 1}); }),
        store->rank() == 0
            ? ""
            : "init_table 'f': no optimizer of its own here, an optimizer of its own in the store");
    item.key = "g";
    item.optimizer = Optimizer::Create("lamb");
    EXPECT_NE(WhyNot([&] { store->InitRows({&item, 1}); }), "");
    store->Barrier();
  });
  std::filesystem::remove_all(folder);
}

TEST(DistRows, ExportAndImportSayWhyNot) {
  Cluster cluster(JobOf(2, 2, "dist_sync"));
  EachWorker(&cluster, [&](KVStore* store) {
    InitTable(store, 10);
    store->Init("d", Floats({1, 2}));
    EXPECT_EQ(WhyNot([&] { store->ExportRows("e", {0, kRowsMax, 3}); }),
              "export_rows 'e': the key does not note when its rows change; init_table(notes=True) "
              "makes one that does");
    EXPECT_EQ(WhyNot([&] { store->ExportRows("e", {4, 3}); }),
              "export_rows 'e': ids from 4 to below 3");
    EXPECT_NE(WhyNot([&] { store->ExportRows("d"); }), "");
    EXPECT_NE(WhyNot([&] { store->StatsOfTable("d"); }), "");
    EXPECT_EQ(WhyNot([&] { store->ImportRows("e", {Ids({4, 4}), RowValues({1, 2})}); }),
              "import_rows 'e': id 4 stands twice");
    EXPECT_NE(WhyNot([&] { store->ImportRows("e", {Ids({10}), RowValues({1})}); }), "");
    store->Barrier();
    const Rows rows{Ids({4}), RowValues({1})};
    if (store->rank() == 1) {
      EXPECT_EQ(WhyNot([&] { store->ImportRows("e", rows); }),
                "import_rows 'e': the lowest rank that lives puts values back");
      Push(store, {5}, {2});  // a round for which rank 0 has pushed nothing
      store->Barrier();
    } else {
      store->Barrier();
      EXPECT_NE(WhyNot([&] { store->ImportRows("e", rows); }).find("round 1 has begun"),
                std::string::npos);
      Push(store, {}, {});
    }
    EXPECT_EQ(Pull(store, {4, 5}), (std::vector<float>{0, 2}));
    store->Barrier();
  });
}

// Only rank 1 has an optimizer and reports it to the servers with its first push of a key.  The
// servers refuse such a round.
TEST(DistRows, WhatARefusedCallWouldHaveToldIsToldByTheNextOne) {
  for (const bool by_rows : {false, true}) {
    Cluster cluster(JobOf(2, 1, "dist_sync"));
    EachWorker(&cluster, [&](KVStore* store) {
      InitTable(store, 10);
      store->Init("d", Floats({1, 2}));
      const auto push = [&] {
        if (by_rows) return Push(store, {1}, {1});
        store->Push("d", Floats({1, 1}));
      };
      if (store->rank() == 1) {
        store->SetOptimizer(Optimizer::Create("sgd"));
        if (by_rows) {
          EXPECT_NE(WhyNot([&] { Push(store, {10}, {1}); }), "");
        } else {
          const NDArray fine = Floats({1, 1}), wrong = Floats({1, 1, 1});
          const NDArray *const a[] = {&fine}, *const b[] = {&wrong};
          const PushItem items[] = {{"d", a}, {"d", b}};
          EXPECT_NE(WhyNot([&] { store->Push(items); }), "");
        }
      }
      push();
      const std::string why = WhyNot([&] {
        if (by_rows) {
          Pull(store, {1});
        } else {
          store->Pull("d", Floats({0, 0}));
        }
      });
      EXPECT_NE(why.find("worker 1 has set an optimizer"), std::string::npos) << why;
      store->Barrier();
    });
  }
}

}  // namespace
}  // namespace tkv::testing
