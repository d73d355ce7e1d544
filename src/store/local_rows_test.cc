// Keys of a local store that are kept by rows, compared with std::map and with dense keys.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "base/random.h"
#include "tests/arrays.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

using test::Floats;
using test::Full;
using test::SameBytes;
using test::Values;

NDArray Ids(const std::vector<int64_t>& ids) {
  return NDArray::FromBytes(ids.data(), {static_cast<int64_t>(ids.size())}, DType::kI64);
}

NDArray Array(const std::vector<float>& values, const Shape& shape, DType dtype = DType::kF32) {
  const NDArray array = NDArray::FromBytes(values.data(), shape, DType::kF32);
  return dtype == DType::kF32 ? array : ConvertFloat(array, dtype);
}

void InitRows(KVStore& store, KeyView key, const Shape& row, uint64_t count,
              DType dtype = DType::kF32, RowInitializer initializer = {}) {
  const RowsInitItem item{key, row, dtype, count, initializer};
  store.InitRows({&item, 1});
}

void PushRows(KVStore& store, KeyView key, const std::vector<Rows>& rows) {
  std::vector<const Rows*> pointers;
  for (const Rows& one : rows) pointers.push_back(&one);
  const RowsPushItem item{key, pointers};
  store.PushRows({&item, 1});
}

NDArray PullRows(KVStore& store, KeyView key, const std::vector<int64_t>& ids, const Shape& row,
                 DType dtype = DType::kF32) {
  std::vector<int64_t> dims{static_cast<int64_t>(ids.size())};
  dims.insert(dims.end(), row.begin(), row.end());
  const NDArray out = NDArray::Empty(Shape(dims), dtype);
  const NDArray id_array = Ids(ids);
  const RowsPullItem item{key, &id_array, &out};
  store.PullRows({&item, 1});
  return out;
}

// Returns random rows with whole numbers, which every dtype adds exactly.
Rows Draw(Random* random, size_t count, int64_t ids, int64_t width, DType dtype) {
  std::vector<int64_t> drawn;
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    drawn.push_back(random->Between(0, ids - 1));
    for (int64_t e = 0; e < width; ++e) {
      values.push_back(static_cast<float>(random->Between(-9, 9)));
    }
  }
  return {Ids(drawn), Array(values, {static_cast<int64_t>(count), width}, dtype)};
}

TEST(LocalRows, AreAsStdMapIsUnderRandomPrograms) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const DType dtype = kTypes[seed % 4];
    const int64_t width = random.Between(1, 9), ids = random.Chance(0.5) ? 30 : 400;
    const auto store = KVStore::Create("local");
    InitRows(*store, "e", {width}, static_cast<uint64_t>(ids), dtype, {.a = 3});
    std::map<int64_t, std::vector<float>> truth;
    const auto row_of = [&](int64_t id) {
      const auto found = truth.find(id);
      return found == truth.end() ? std::vector<float>(static_cast<size_t>(width), 3)
                                  : found->second;
    };
    for (int step = 0; step < 30; ++step) {
      if (random.Chance(0.1)) {  // all rows
        const NDArray all = Full({ids, width}, step, dtype);
        store->Push("e", all);
        for (int64_t id = 0; id < ids; ++id) {
          truth[id].assign(static_cast<size_t>(width), static_cast<float>(step));
        }
        continue;
      }
      std::vector<Rows> rows;
      std::map<int64_t, std::vector<float>> sums;
      for (int64_t k = random.Between(1, 3); k > 0; --k) {
        rows.push_back(
            Draw(&random, static_cast<size_t>(random.Between(0, 60)), ids, width, dtype));
        const auto drawn = Values<int64_t>(rows.back().ids);
        const auto values = Values(ConvertFloat(rows.back().values, DType::kF32));
        for (size_t i = 0; i < drawn.size(); ++i) {
          auto& sum = sums[drawn[i]];
          sum.resize(static_cast<size_t>(width));
          for (size_t e = 0; e < sum.size(); ++e) sum[e] += values[i * sum.size() + e];
        }
      }
      PushRows(*store, "e", rows);
      for (const auto& [id, sum] : sums) truth[id] = sum;
      std::vector<int64_t> asked;
      std::vector<float> wanted;
      for (int64_t k = random.Between(0, 80); k > 0; --k) {
        asked.push_back(random.Between(0, ids - 1));
        const auto row = row_of(asked.back());
        wanted.insert(wanted.end(), row.begin(), row.end());
      }
      ASSERT_EQ(Values(PullRows(*store, "e", asked, {width})), wanted) << "floats convert";
    }
    const NDArray all = NDArray::Empty({ids, width}, dtype);
    store->Pull("e", all);
    std::vector<float> wanted;
    for (int64_t id = 0; id < ids; ++id) {
      const auto row = row_of(id);
      wanted.insert(wanted.end(), row.begin(), row.end());
    }
    ASSERT_EQ(Values(ConvertFloat(all, DType::kF32)), wanted);
  }
}

// Compares a key by rows with a dense key.  A zero that gets a sum of zero stays zero, so updating
// all rows has the same result as updating the pushed ones.
void CompareKinds(const char* optimizer, DType dtype, bool lazy, bool multi_precision,
                  uint64_t seed) {
  SCOPED_TRACE(testing::Message() << optimizer << " " << Name(dtype) << (lazy ? " lazy" : "")
                                  << (multi_precision ? " master" : ""));
  Random random(seed);
  constexpr int64_t kIds = 50, kWidth = 6;
  const auto store = KVStore::Create("local");
  store->Init("dense", Full({kIds, kWidth}, 0, dtype));
  InitRows(*store, "rows", {kWidth}, kIds, dtype);
  store->SetOptimizer(
      Optimizer::Create(optimizer, {{"learning_rate", 0.1}}, multi_precision, lazy));
  for (int step = 0; step < 6; ++step) {
    const Rows rows = Draw(&random, 30, kIds, kWidth, dtype);
    for (const char* key : {"dense", "rows"}) {
      if (step == 3) {
        store->Push(key, Full({kIds, kWidth}, 1, dtype));
      } else {
        PushRows(*store, key, {rows, rows});
      }
    }
    const NDArray a = NDArray::Empty({kIds, kWidth}, dtype),
                  b = NDArray::Empty({kIds, kWidth}, dtype);
    store->Pull("dense", a);
    store->Pull("rows", b);
    ASSERT_TRUE(SameBytes(a, b)) << "step " << step;
  }
  EXPECT_EQ(store->Round("rows"), 6);
}

TEST(LocalRows, OptimizersDoTheSameToBothKindsOfKeys) {
  uint64_t seed = 0;
  for (const char* optimizer : {"sgd", "momentum", "adam", "adagrad", "rmsprop", "nadam"}) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
      for (const bool lazy : {true, false}) {
        CompareKinds(optimizer, dtype, lazy, seed % 2 == 0, seed);
        ++seed;
      }
    }
  }
}

TEST(LocalRows, ALazyOptimizerLeavesTheOtherRows) {
  for (const bool lazy : {true, false}) {
    const auto store = KVStore::Create("local");
    store->Init("dense", Full({4, 2}, 1));
    InitRows(*store, "rows", {2}, 4);
    PushRows(*store, "rows", {{Ids({0, 1, 2}), Full({3, 2}, 1)}});
    store->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 1}, {"wd", 0.5}}, false, lazy));
    const Rows rows{Ids({1}), Full({1, 2}, 0)};
    PushRows(*store, "dense", {rows});
    PushRows(*store, "rows", {rows});
    const float other = lazy ? 1 : 0.5F;
    const NDArray out = NDArray::Empty({4, 2});
    store->Pull("dense", out);
    EXPECT_EQ(Values(out),
              (std::vector<float>{other, other, 0.5F, 0.5F, other, other, other, other}));
    store->Pull("rows", out);
    EXPECT_EQ(Values(out), (std::vector<float>{other, other, 0.5F, 0.5F, other, other, 0, 0}))
        << "row 3 is not there";
  }
}

TEST(LocalRows, ANewOptimizerStartsAfresh) {
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {1}, 10);
  const auto push = [&] { PushRows(*store, "e", {{Ids({3}), Full({1, 1}, 1)}}); };
  for (int i = 1; i <= 2; ++i) {
    store->SetOptimizer(
        Optimizer::Create("momentum", {{"learning_rate", 1}, {"momentum", i == 1 ? 0.25 : 0.5}}));
    push();
    EXPECT_EQ(Values(PullRows(*store, "e", {3}, {1}))[0], -static_cast<float>(i));
  }
  push();
  EXPECT_EQ(Values(PullRows(*store, "e", {3}, {1}))[0], -3.5F) << "the momentum of one push";
}

TEST(LocalRows, NormsAndFunctionsAreRefusedAndNothingChanges) {
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {2}, 10);
  store->Init("dense", Full({10, 2}, 1));
  PushRows(*store, "e", {{Ids({3}), Full({1, 2}, 1)}});
  const Rows rows{Ids({3}), Full({1, 2}, 5)};
  EXPECT_FAILS(Code::kFailedPrecondition, store->SetOptimizer(Optimizer::Create("lamb")));
  store->SetUpdater([](const KeyView&, const NDArray&, const NDArray& stored) { Fill(stored, 9); },
                    {});
  EXPECT_FAILS(Code::kUnimplemented, PushRows(*store, "e", {rows}));
  EXPECT_FAILS(Code::kUnimplemented, store->Push("e", Full({10, 2}, 1)));
  EXPECT_EQ(Values(PullRows(*store, "e", {3}, {2})), (std::vector<float>{1, 1}));
  PushRows(*store, "dense", {rows});
  const NDArray out = NDArray::Empty({10, 2});
  store->Pull("dense", out);
  EXPECT_EQ(Values(out), std::vector<float>(20, 9));
}

TEST(LocalRows, AFunctionGetsTheRowsOfAValueWithZerosBetween) {
  const auto store = KVStore::Create("local");
  store->Init("dense", Full({4, 1}, 1));
  std::vector<float> sum;
  store->SetUpdater(
      [&](const KeyView&, const NDArray& given, const NDArray&) { sum = Values(given); }, {});
  PushRows(*store, "dense", {{Ids({2, 0, 2}), Array({1, 2, 4}, {3, 1})}});
  EXPECT_EQ(sum, (std::vector<float>{2, 0, 5, 0}));
  store->SetUpdater({}, {});
  PushRows(*store, "dense", {{Ids({1}), Array({7}, {1, 1})}});
  const NDArray out = NDArray::Empty({4, 1});
  store->Pull("dense", out);
  EXPECT_EQ(Values(out), (std::vector<float>{0, 7, 0, 0}));
}

TEST(LocalRows, IdsAreCheckedBeforeAnythingChanges) {
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {2}, 10);
  InitRows(*store, "f", {2}, 10);
  const Rows fine{Ids({1}), Full({1, 2}, 1)};
  const Rows wrong{Ids({1, 2, 3, 12}), Full({4, 2}, 1)};
  const Rows negative{Ids({-1}), Full({1, 2}, 1)};
  const Rows* const first[] = {&fine};
  const Rows* const second[] = {&fine, &wrong};
  const RowsPushItem items[] = {{"e", first}, {"f", second}};
  const auto failure = test::FailureOf([&] { store->PushRows(items); });
  EXPECT_EQ(failure.code, Code::kOutOfRange);
  EXPECT_EQ(failure.message, "push_rows 'f': id 12 at position 3, the key has ids below 10");
  EXPECT_FAILS(Code::kOutOfRange, PushRows(*store, "e", {negative}));
  EXPECT_EQ(Values(PullRows(*store, "e", {1}, {2})), (std::vector<float>{0, 0}));
  EXPECT_EQ(store->Round("e"), 0);
  const auto pull = test::FailureOf([&] { PullRows(*store, "e", {0, 10}, {2}); });
  EXPECT_EQ(pull.message, "pull_rows 'e': id 10 at position 1, the key has ids below 10");
  store->Init("dense", Full({3, 2}, 0));
  EXPECT_FAILS(Code::kOutOfRange, PushRows(*store, "dense", {{Ids({3}), Full({1, 2}, 1)}}));
}

TEST(LocalRows, WhatDoesNotFitIsRefused) {
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {2}, 10);
  InitRows(*store, "huge", {2}, kRowsMax);
  store->Init("dense", Full({3, 2}, 0));
  store->Init("scalar", Full({}, 0));
  const auto refuses = [&](KeyView key, const NDArray& ids, const NDArray& values) {
    EXPECT_FAILS(Code::kInvalidArgument, PushRows(*store, key, {{ids, values}}));
  };
  refuses("e", Ids({1, 2}), Full({1, 2}, 0));
  refuses("e", Ids({1}), Full({1, 3}, 0));
  refuses("e", Ids({1}), Full({2}, 0));
  refuses("e", Ids({1}), Full({1, 2}, 0, DType::kF64));
  refuses("e", Full({1}, 1), Full({1, 2}, 0));
  refuses("e", Full({1, 1}, 1, DType::kI64), Full({1, 2}, 0));
  refuses("scalar", Ids({0}), Full({1}, 0));
  EXPECT_FAILS(Code::kInvalidArgument, PushRows(*store, "e", {}));
  EXPECT_FAILS(Code::kNotFound, PushRows(*store, "other", {{Ids({1}), Full({1, 2}, 0)}}));
  EXPECT_FAILS(Code::kInvalidArgument, PullRows(*store, "e", {1}, {3}));
  EXPECT_FAILS(Code::kInvalidArgument, PullRows(*store, "e", {1}, {2}, DType::kI32));
  EXPECT_FAILS(Code::kInvalidArgument, PullRows(*store, "dense", {1}, {2}));
  EXPECT_FAILS(Code::kInvalidArgument, store->Push("e", Full({9, 2}, 0)));
  EXPECT_FAILS(Code::kInvalidArgument, store->Push("huge", Full({9, 2}, 0)));
  EXPECT_FAILS(Code::kInvalidArgument, store->Pull("huge", Full({9, 2}, 0)));
  EXPECT_FAILS(Code::kInvalidArgument, store->PushRows({}));
  EXPECT_FAILS(Code::kInvalidArgument, store->PullRows({}));
}

TEST(LocalRows, KeysAreMadeWithTheRowsThatTheyBeginWith) {
  const auto store = KVStore::Create("local");
  const auto init = [&](KeyView key, const Rows* rows, uint64_t count) {
    const RowsInitItem item{key, {2}, DType::kF32, count, {.a = 8}, rows};
    store->InitRows({&item, 1});
  };
  const Rows fine{Ids({7, 2}), Array({1, 2, 3, 4}, {2, 2})};
  const Rows twice{Ids({2, 2}), Array({1, 2, 3, 4}, {2, 2})};
  init("e", &fine, 10);
  EXPECT_EQ(Values(PullRows(*store, "e", {2, 7, 0}, {2})), (std::vector<float>{3, 4, 1, 2, 8, 8}));
  EXPECT_FAILS(Code::kInvalidArgument, init("f", &twice, 10));
  EXPECT_FAILS(Code::kOutOfRange, init("f", &fine, 7));
  EXPECT_FAILS(Code::kInvalidArgument, init("f", nullptr, 0));
  EXPECT_FAILS(Code::kAlreadyExists, init("e", nullptr, 10));
  EXPECT_FAILS(Code::kAlreadyExists, store->Init("e", Floats({1})));
  EXPECT_FALSE(store->Contains("f"));
}

TEST(LocalRows, AreKeysAsOthersAre) {
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {2, 3}, 10, DType::kF16);
  store->Init("dense", Floats({1}));
  const KVStore::KeyInfo info = store->Describe("e");
  EXPECT_TRUE(info.by_rows);
  EXPECT_EQ(info.row_count, 10);
  EXPECT_EQ(info.shape, Shape({2, 3}));
  EXPECT_EQ(info.dtype, DType::kF16);
  EXPECT_FALSE(store->Describe("dense").by_rows);
  EXPECT_EQ(store->size(), 2);
  PushRows(*store, "e", {{Ids({1, 2}), Full({2, 2, 3}, 1, DType::kF16)}});
  PullRows(*store, "e", {1}, {2, 3}, DType::kF16);
  const StoreStats stats = store->Stats();
  EXPECT_EQ(stats.keys.at(0).bytes.pushed_bytes, 24);
  EXPECT_EQ(stats.keys.at(0).bytes.pulled_bytes, 12);
  store->Delete("e");
  EXPECT_FALSE(store->Contains("e"));
  EXPECT_FAILS(Code::kNotFound, PullRows(*store, "e", {1}, {2, 3}, DType::kF16));
  store->Close();
  EXPECT_FAILS(Code::kFailedPrecondition, InitRows(*store, "f", {2}, 10));
}

TEST(LocalRows, SnapshotsHaveRowsAndStates) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  constexpr int64_t kIds = 3000;
  std::vector<int64_t> all;
  for (int64_t id = 0; id < kIds; id += 2) all.push_back(id);
  for (const char* optimizer : {"", "sgd", "momentum", "adam", "nadam"}) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      for (const bool lazy : {true, false}) {
        if (!lazy && std::string_view(optimizer) != "momentum") continue;
        const bool is_wide = std::string_view(optimizer) == "adam" && dtype == DType::kF32;
        const int64_t width = is_wide ? 700 : 30;  // several blocks or one
        const auto make = [&] {
          auto store = KVStore::Create("local");
          InitRows(*store, "e", {width}, kIds, dtype, {RowInitializer::Kind::kUniform, -1, 1, 7});
          store->Init("dense", Full({3}, 1));
          if (*optimizer != '\0') {
            store->SetOptimizer(Optimizer::Create(optimizer, {}, true, lazy));
          }
          return store;
        };
        const auto step = [&](KVStore& store, uint64_t number) {
          Random random(number);
          PushRows(store, "e", {Draw(&random, 900, kIds / 2, width, dtype)});
          store.Push("dense", Full({3}, 0.5));
        };
        const auto read = [&](KVStore& store) { return PullRows(store, "e", all, {width}, dtype); };
        const auto store = make();
        for (const uint64_t number : {1, 2}) step(*store, number);
        const std::string path = (folder / "all").string();
        store->Save(path);
        const NDArray then = read(*store);
        step(*store, 3);
        const NDArray expected = read(*store);
        EXPECT_FALSE(SameBytes(then, expected));
        const auto goes_on = [&](KVStore& other) {
          EXPECT_TRUE(SameBytes(read(other), then));
          step(other, 3);
          EXPECT_TRUE(SameBytes(read(other), expected)) << optimizer << " " << Name(dtype) << lazy;
        };
        step(*store, 4);
        store->Load(path);
        EXPECT_EQ(store->Round("e"), 2U);
        goes_on(*store);
        const auto other = make();
        other->Load(path);
        goes_on(*other);
        const auto restored = KVStore::Create("local");
        restored->Restore(path);
        EXPECT_EQ(restored->Describe("e").row_count, static_cast<uint64_t>(kIds));
        goes_on(*restored);
        if (*optimizer == '\0') continue;
        const std::string states = (folder / "states").string();
        store->SaveStates(states);
        const auto fresh = make();
        fresh->LoadStates(states);
        const auto begun = make();
        EXPECT_TRUE(SameBytes(read(*fresh), read(*begun))) << "values stay";
        step(*store, 5), step(*fresh, 5);
        fresh->SaveStates(states);
        fresh->LoadStates(states);
      }
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(LocalRows, ASnapshotOfOtherRowsIsRefused) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {2}, 10);
  PushRows(*store, "e", {{Ids({1, 2}), Full({2, 2}, 1)}});
  store->Save(folder.string());
  const auto refuses = [&](const Shape& row, uint64_t count, DType dtype,
                           RowInitializer initializer, const char* why) {
    const auto other = KVStore::Create("local");
    if (count > 0) {
      InitRows(*other, "e", row, count, dtype, initializer);
    } else {
      other->Init("e", Full(row, 1, dtype));
    }
    const auto failure = test::FailureOf([&] { other->Load(folder.string()); });
    EXPECT_EQ(failure.code, Code::kInvalidArgument) << failure.message;
    EXPECT_NE(failure.message.find(why), std::string::npos) << failure.message;
  };
  refuses({3}, 10, DType::kF32, {}, "shape (2,) float32");
  refuses({2}, 11, DType::kF32, {}, "10 rows");
  refuses({2}, 10, DType::kF16, {}, "shape (2,) float32");
  refuses({2}, 10, DType::kF32, {.a = 1}, "rows begin as 0");
  refuses({2}, 10, DType::kF32, {RowInitializer::Kind::kUniform, 0, 1, 2}, "seed 2 in the store");
  refuses({2}, 0, DType::kF32, {}, "by rows in");
  EXPECT_FAILS(Code::kInvalidArgument, InitRows(*store, "nan", {2}, 9, DType::kF32, {.a = NAN}));
  std::filesystem::remove_all(folder);
}

TEST(LocalRows, StridedArraysAreTakenAsTheyAre) {
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {2}, 10);
  std::vector<int64_t> ids{1, 99, 5, 99};
  std::vector<float> values{1, 3, 2, 4}, out(4, 0);
  const int64_t two[] = {2}, turned[] = {1, 2};
  const NDArray id_array = NDArray::Wrap(ids.data(), {2}, DType::kI64, {}, true, nullptr, two);
  const NDArray value_array =
      NDArray::Wrap(values.data(), {2, 2}, DType::kF32, {}, true, nullptr, turned);
  const NDArray out_array =
      NDArray::Wrap(out.data(), {2, 2}, DType::kF32, {}, false, nullptr, turned);
  PushRows(*store, "e", {{id_array, value_array}});
  EXPECT_EQ(Values(PullRows(*store, "e", {1, 5}, {2})), (std::vector<float>{1, 2, 3, 4}));
  const RowsPullItem item{"e", &id_array, &out_array};
  store->PullRows({&item, 1});
  EXPECT_EQ(out, (std::vector<float>{1, 3, 2, 4}));
}

TEST(LocalRows, ThreadsShareAKey) {
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {4}, 100'000);
  store->SetOptimizer(Optimizer::Create("test"));
  constexpr int kThreads = 3, kPushes = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<uint64_t>(t));
      for (int i = 0; i < kPushes; ++i) {
        std::vector<int64_t> ids{7};
        for (int k = 0; k < 99; ++k) ids.push_back(random.Between(8, 99'999));
        PushRows(*store, "e", {{Ids(ids), Full({100, 4}, 1)}});
        PullRows(*store, "e", ids, {4});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Values(PullRows(*store, "e", {7}, {4}))[0], kThreads * kPushes);
  EXPECT_EQ(store->Round("e"), kThreads * kPushes);
}

TEST(LocalRows, BothKindsOfKeysInOneCall) {
  const auto store = KVStore::Create("local");
  InitRows(*store, 1, {2}, 3);
  store->Init(2, Full({2}, 0));
  const NDArray rows = Full({3, 2}, 1), value = Full({2}, 2);
  const NDArray rows_out = Full({3, 2}, 0), value_out = Full({2}, 0);
  const NDArray *a[] = {&rows, &rows}, *b[] = {&value}, *c[] = {&rows_out}, *d[] = {&value_out};
  const PushItem pushes[] = {{1, a}, {2, b}};
  const PullItem pulls[] = {{1, c}, {2, d}};
  store->PushPull(pushes, pulls);
  EXPECT_EQ(Values(rows_out), std::vector<float>(6, 2));
  EXPECT_EQ(Values(value_out), std::vector<float>(2, 2));
}

TEST(LocalRows, WhatIsRefusedIsNotCounted) {
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {2}, 10);
  InitRows(*store, "bools", {2}, 10, DType::kBool);
  store->Init("dense", Full({2}, 0));
  EXPECT_FAILS(Code::kOutOfRange, PushRows(*store, "e", {{Ids({10}), Full({1, 2}, 1)}}));
  EXPECT_FAILS(Code::kOutOfRange, PullRows(*store, "e", {10}, {2}));
  const NDArray bools = Full({10, 2}, 1, DType::kBool);
  EXPECT_FAILS(Code::kInvalidArgument, store->Push("bools", std::vector<NDArray>{bools, bools}));
  const Rows wrong{Ids({-1}), Full({1, 2}, 1)};
  const Rows* const list[] = {&wrong};
  const RowsPushItem item{"e", list};
  const NDArray value = Full({2}, 1);
  const NDArray* const values[] = {&value};
  const PushItem whole{"dense", values};
  EXPECT_FAILS(Code::kOutOfRange, store->PushRows({&item, 1}, {&whole, 1}));
  store->SetUpdater([](const KeyView&, const NDArray&, const NDArray&) {}, {});
  EXPECT_FAILS(Code::kUnimplemented, store->Push("e", Full({10, 2}, 1)));
  const StoreStats stats = store->Stats();
  EXPECT_EQ(stats.bytes.pushed_bytes, 0U);
  EXPECT_EQ(stats.bytes.pulled_bytes, 0U);
  EXPECT_EQ(stats.of(Verb::kPush).failed, 4U);
}

// Momentum has other states than Adam, so each change makes a new table.  The thread sanitizer
// finds races.
TEST(LocalRows, CallsLookAtAKeyWhileItsTableIsReplaced) {
  const auto store = KVStore::Create("local");
  InitRows(*store, "e", {4}, 100);
  std::atomic<bool> ends = false;
  std::thread looks([&] {
    while (!ends) {
      PullRows(*store, "e", {1, 2}, {4});
      store->Describe("e");
      store->Pull("e", Full({100, 4}, 0));
    }
  });
  for (int i = 0; i < 100; ++i) {
    store->SetOptimizer(Optimizer::Create(i % 2 == 0 ? "momentum" : "adam"));
    PushRows(*store, "e", {{Ids({1}), Full({1, 4}, 1)}});
    store->ImportRows("e", {Ids({2}), Full({1, 4}, 1)});
  }
  ends = true;
  looks.join();
  EXPECT_EQ(store->Round("e"), 100U);
}

}  // namespace
}  // namespace tkv
