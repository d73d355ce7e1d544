// What every KVStore does.  A store enrols by one line at the end.

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "tests/arrays.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

using test::Floats;
using test::Full;
using test::SameBytes;
using test::Values;

struct Subject {
  const char* name;
  std::function<std::unique_ptr<KVStore>()> make;
  bool runs_functions = true;  // a C++ function as updater
};

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

class StoreConformance : public ::testing::TestWithParam<Subject> {
 protected:
  std::unique_ptr<KVStore> store_ = GetParam().make();

  // Where functions do not run, setting one says so; the rest of the test is then for others.
  bool RefusesFunctions() {
    if (GetParam().runs_functions) return false;
    EXPECT_FAILS(Code::kUnimplemented,
                 store_->SetUpdater([](const KeyView&, const NDArray&, const NDArray&) {}));
    return true;
  }
  std::vector<float> Pulled(const KeyView& key) {
    const NDArray out = NDArray::Empty(store_->Describe(key).shape, store_->Describe(key).dtype);
    store_->Pull(key, out);
    return Values(out);
  }
  void InitFloats(const KeyView& key, const std::vector<float>& values) {
    store_->Init(key, Floats(values));
  }
};

// ------------------------------------------------------------------------------------------------------
// init and pull

TEST_P(StoreConformance, PullGivesWhatInitStored) {
  InitFloats(3, {1, 2});
  EXPECT_EQ(Pulled(3), (std::vector<float>{1, 2}));
}

TEST_P(StoreConformance, InitCopiesItsValue) {
  const NDArray value = Floats({1, 2});
  store_->Init("w", value);
  Fill(value, 9);
  EXPECT_EQ(Pulled("w"), (std::vector<float>{1, 2}));
}

TEST_P(StoreConformance, ASecondInitIsAnErrorAndChangesNothing) {
  InitFloats(3, {1});
  EXPECT_FAILS(Code::kAlreadyExists, InitFloats(3, {2}));
  EXPECT_EQ(Pulled(3), (std::vector<float>{1}));
}

TEST_P(StoreConformance, InitOfAListIsAllOrNothing) {
  InitFloats(2, {1});
  const NDArray value = Floats({5});
  const InitItem items[] = {{1, &value}, {2, &value}};
  EXPECT_FAILS(Code::kAlreadyExists, store_->Init(items));
  EXPECT_FALSE(store_->Contains(1));
  const InitItem twice[] = {{7, &value}, {8, &value}, {7, &value}};
  EXPECT_FAILS(Code::kAlreadyExists, store_->Init(twice));
  EXPECT_EQ(store_->size(), 1U);
  EXPECT_FAILS(Code::kInvalidArgument, store_->Init(std::span<const InitItem>()));
}

TEST_P(StoreConformance, EveryKeyIsAKeyOfItsOwn) {
  const int64_t keys[] = {0,
                          -1,
                          1,
                          int64_t{1} << 32,
                          std::numeric_limits<int64_t>::min(),
                          std::numeric_limits<int64_t>::max()};
  float value = 0;
  for (int64_t key : keys) InitFloats(key, {++value});
  value = 0;
  for (int64_t key : keys) EXPECT_EQ(Pulled(key), (std::vector<float>{++value}));
}

TEST_P(StoreConformance, StringKeysMayBeAnyUtf8) {
  float value = 0;
  const std::string keys[] = {
      "", "w", "3", "ключ/重み", std::string(1000, 'x'), std::string("a\0b", 3)};
  for (const std::string& key : keys) InitFloats(key, {++value});
  value = 0;
  for (const std::string& key : keys) EXPECT_EQ(Pulled(key), (std::vector<float>{++value}));
}

TEST_P(StoreConformance, IntegerAndStringKeysDoNotMix) {
  const NDArray value = Floats({1});
  const InitItem both[] = {{1, &value}, {"1", &value}};
  EXPECT_FAILS(Code::kInvalidArgument, store_->Init(both));
  InitFloats(3, {1});
  EXPECT_FAILS(Code::kInvalidArgument, InitFloats("3", {1}));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push("3", value));
}

TEST_P(StoreConformance, AnUnknownKeyIsNamedAndNotCreated) {
  InitFloats("a", {1});
  const auto failure = test::FailureOf([&] { store_->Push("w3", Floats({1})); });
  EXPECT_EQ(failure.code, Code::kNotFound);
  EXPECT_EQ(failure.message, "push 'w3': no such key, init it first");
  EXPECT_FAILS(Code::kNotFound, store_->Pull("w3", Floats({1})));
  InitFloats("w3", {1});
}

TEST_P(StoreConformance, ShapesOfRankZeroAndSizeZero) {
  store_->Init(1, Full({}, 5));
  store_->Init(2, Full({3, 0}, 5));
  store_->Push(1, Full({}, 7));
  store_->Push(2, Full({3, 0}, 7));
  EXPECT_EQ(Pulled(1), (std::vector<float>{7}));
  EXPECT_EQ(Pulled(2), (std::vector<float>{}));
}

TEST_P(StoreConformance, EveryDTypeIsStoredAndAssigned) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    store_->Init(i, Full({5}, 0, dtype));
    store_->Push(i, Full({5}, 1, dtype));
    const NDArray out = Full({5}, 0, dtype);
    store_->Pull(i, out);
    EXPECT_TRUE(SameBytes(out, Full({5}, 1, dtype))) << Name(dtype);
  }
}

TEST_P(StoreConformance, KeysComeInTheOrderOfInit) {
  for (const char* key : {"b", "a", "c"}) InitFloats(key, {0});
  std::string order;
  for (const Key& key : store_->Keys()) order += key.text();
  EXPECT_EQ(order, "bac");
  EXPECT_EQ(store_->size(), 3U);
  EXPECT_TRUE(store_->Contains("a"));
  EXPECT_FALSE(store_->Contains("d"));
}

TEST_P(StoreConformance, BroadcastInitsAndPullsOrDoesNothing) {
  const NDArray value = Floats({5});
  const NDArray good = Floats({0});
  const NDArray bad = Floats({0, 0});
  const NDArray* pointers[] = {&good, &bad};
  const InitItem item{1, &value};
  const PullItem fails{1, {pointers, 2}};
  const PullItem other{2, {pointers, 1}};
  EXPECT_FAILS(Code::kInvalidArgument, store_->Broadcast({&item, 1}, {&fails, 1}));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Broadcast({&item, 1}, {&other, 1}));
  EXPECT_FALSE(store_->Contains(1));
  const PullItem works{1, {pointers, 1}};
  store_->Broadcast({&item, 1}, {&works, 1});
  EXPECT_EQ(Values(good)[0], 5);
  EXPECT_FAILS(Code::kAlreadyExists, store_->Broadcast({&item, 1}, {&works, 1}));
}

// ---------------------------------------------------------------------------------------------------------------
// push

TEST_P(StoreConformance, PushAssignsACopy) {
  InitFloats(3, {0, 0});
  const NDArray pushed = Floats({1, 2});
  store_->Push(3, pushed);
  Fill(pushed, 9);
  EXPECT_EQ(Pulled(3), (std::vector<float>{1, 2}));
}

TEST_P(StoreConformance, PullAfterPushSeesTheSumOverDevices) {
  InitFloats(3, {0});
  store_->Push(3, std::vector{Floats({1}), Floats({2}), Floats({4})});
  EXPECT_EQ(Pulled(3), (std::vector<float>{7}));
}

TEST_P(StoreConformance, AListMayGrowAndShrinkBetweenPushes) {
  InitFloats(3, {0});
  for (size_t n : {4, 1, 20, 2, 9}) {
    store_->Push(3, std::vector<NDArray>(n, Floats({1})));
    EXPECT_EQ(Pulled(3), (std::vector<float>{static_cast<float>(n)}));
  }
}

TEST_P(StoreConformance, APushOfAnotherShapeOrDTypeChangesNothing) {
  InitFloats(3, {1, 2});
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push(3, Full({3}, 1)));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push(3, Full({1, 2}, 1)));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push(3, Full({2}, 1, DType::kF64)));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push(3, std::vector{Floats({1, 1}), Floats({1})}));
  const auto failure = test::FailureOf([&] { store_->Push(3, Full({2, 4}, 1)); });
  EXPECT_EQ(failure.message, "push 3: shape (2, 4), the key has (2,)");
  EXPECT_EQ(Pulled(3), (std::vector<float>{1, 2}));
}

TEST_P(StoreConformance, OneBadItemFailsTheWholeCall) {
  InitFloats(1, {1});
  InitFloats(2, {2});
  const NDArray good = Floats({9});
  const NDArray bad = Floats({9, 9});
  const NDArray* values[] = {&good, &bad};
  const PushItem items[] = {{1, {&values[0], 1}}, {2, {&values[1], 1}}};
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push(items));
  EXPECT_EQ(Pulled(1), (std::vector<float>{1}));
}

TEST_P(StoreConformance, EmptyListsAreErrors) {
  InitFloats(3, {1});
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push(3, std::span<const NDArray>()));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Pull(3, std::span<const NDArray>()));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push(std::span<const PushItem>()));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Pull(std::span<const PullItem>()));
}

TEST_P(StoreConformance, AKeyThatStandsTwiceIsOneList) {
  if (RefusesFunctions()) GTEST_SKIP() << "runs no functions of the caller";
  InitFloats(1, {0});
  InitFloats(2, {0});
  const NDArray values[] = {Floats({1}), Floats({2}), Floats({4})};
  const NDArray* pointers[] = {&values[0], &values[1], &values[2]};
  int calls = 0;
  store_->SetUpdater([&](const KeyView&, const NDArray& sum, const NDArray& stored) {
    ++calls;
    stored.CopyFrom(sum);
  });
  const PushItem items[] = {{1, {pointers, 1}}, {2, {pointers + 1, 1}}, {1, {pointers + 2, 1}}};
  store_->Push(items);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(Pulled(1), (std::vector<float>{5}));
  EXPECT_EQ(Pulled(2), (std::vector<float>{2}));
}

TEST_P(StoreConformance, BoolsAreAssignedButNotSummed) {
  store_->Init(1, Full({2}, 0, DType::kBool));
  const NDArray value = Full({2}, 1, DType::kBool);
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push(1, std::vector{value, value}));
}

TEST_P(StoreConformance, StridedValuesAndOutputs) {
  InitFloats(1, {0, 0, 0});
  std::vector<float> memory = {1, -1, 2, -1, 3, -1};
  const std::vector<int64_t> every_second = {2};
  const NDArray view =
      NDArray::Wrap(memory.data(), {3}, DType::kF32, {}, false, nullptr, every_second);
  store_->Push(1, std::vector{view, Floats({10, 20, 30})});
  EXPECT_EQ(Pulled(1), (std::vector<float>{11, 22, 33}));
  store_->Pull(1, view);
  EXPECT_EQ(memory, (std::vector<float>{11, -1, 22, -1, 33, -1}));
}

TEST_P(StoreConformance, ABatchOfManyLargeKeys) {
  constexpr int kKeys = 30;
  std::vector<NDArray> values, outs;
  std::vector<const NDArray*> value_pointers, out_pointers;
  for (int key = 0; key < kKeys; ++key) {
    values.push_back(Full({20000 + key}, key));
    outs.push_back(Full({20000 + key}, -1));
    store_->Init(key, outs.back());
  }
  for (const NDArray& value : values) value_pointers.insert(value_pointers.end(), 2, &value);
  for (const NDArray& out : outs) out_pointers.push_back(&out);
  std::vector<PushItem> push;
  std::vector<PullItem> pull;
  for (size_t key = 0; key < kKeys; ++key) {
    push.push_back({static_cast<int64_t>(key), {&value_pointers[2 * key], 2}});
    pull.push_back({static_cast<int64_t>(key), {&out_pointers[key], 1}});
  }
  store_->PushPull(push, pull);
  for (int key = 0; key < kKeys; ++key) {
    EXPECT_TRUE(SameBytes(outs[static_cast<size_t>(key)], Full({20000 + key}, 2 * key)));
  }
}

// ---------------------------------------------------------------------------------------------------------------
// pull

TEST_P(StoreConformance, PullFillsEveryOutput) {
  InitFloats(3, {5});
  const std::vector<NDArray> outs = {Floats({0}), Floats({0}), Floats({0})};
  store_->Pull(3, outs);
  for (const NDArray& out : outs) EXPECT_EQ(Values(out)[0], 5);
}

TEST_P(StoreConformance, OneArrayAsOutputOfManyKeysHoldsTheLast) {
  for (int64_t count : {2, 100000}) {
    const int64_t base = count;
    for (int64_t key = 0; key < 5; ++key)
      store_->Init(base + key, Full({count}, static_cast<double>(key)));
    const NDArray out = Full({count}, -1);
    const NDArray* pointer = &out;
    std::vector<PullItem> items;
    for (int64_t key = 0; key < 5; ++key) items.push_back({base + key, {&pointer, 1}});
    store_->Pull(items);
    EXPECT_TRUE(SameBytes(out, Full({count}, 4)));
  }
}

TEST_P(StoreConformance, PullConvertsBetweenFloatsOnly) {
  InitFloats(1, {1.5});
  const NDArray out = Full({1}, 0, DType::kF64);
  store_->Pull(1, out);
  EXPECT_EQ(Values<double>(out)[0], 1.5);
  EXPECT_FAILS(Code::kInvalidArgument, store_->Pull(1, Full({1}, 0, DType::kI32)));
}

TEST_P(StoreConformance, AnOutputOfAnotherShapeOrReadOnlyIsRefusedAndNoneIsWritten) {
  InitFloats(1, {5});
  const NDArray good = Floats({0});
  EXPECT_FAILS(Code::kInvalidArgument, store_->Pull(1, std::vector{good, Full({1, 1}, 0)}));
  float constant = 0;
  const NDArray locked = NDArray::Wrap(&constant, {1}, DType::kF32, {}, true, nullptr);
  EXPECT_FAILS(Code::kInvalidArgument, store_->Pull(1, std::vector{good, locked}));
  EXPECT_EQ(Values(good)[0], 0);
}

// -----------------------------------------------------------------------------------------------------------
// pushpull

TEST_P(StoreConformance, PushPullGivesTheUpdatedValue) {
  for (int64_t count : {3, 200000}) {
    store_->Init(count, Full({count}, 1));
    const NDArray out = Full({count}, 0);
    store_->PushPull(count, std::vector{Full({count}, 2), Full({count}, 3)}, {&out, 1});
    EXPECT_TRUE(SameBytes(out, Full({count}, 5)));
  }
}

TEST_P(StoreConformance, PushPullInPlace) {
  for (int64_t count : {3, 200000}) {
    store_->Init(count, Full({count}, 0));
    const std::vector<NDArray> values = {Full({count}, 1), Full({count}, 2)};
    store_->PushPull(count, values, values);
    for (const NDArray& value : values) EXPECT_TRUE(SameBytes(value, Full({count}, 3)));
    store_->PushPull(count, {values.data(), 1}, {values.data(), 1});
    EXPECT_TRUE(SameBytes(values[0], Full({count}, 3)));
  }
}

// All pushes of a call come before its pulls, also where keys share arrays.
TEST_P(StoreConformance, PushPullOfManyKeysWithTheSameArrays) {
  for (int64_t count : {3, 100000}) {
    const NDArray shared = Full({count}, 1);
    const NDArray* pointers[] = {&shared, &shared};
    std::vector<PushItem> push;
    std::vector<PullItem> pull;
    for (int64_t key = 0; key < 4; ++key) {
      store_->Init(count + key, Full({count}, 0));
      push.push_back({count + key, pointers});
      pull.push_back({count + key, {pointers, 1}});
    }
    store_->PushPull(push, pull);
    EXPECT_TRUE(SameBytes(shared, Full({count}, 2)));
    for (int64_t key = 0; key < 4; ++key) EXPECT_EQ(Pulled(count + key)[0], 2);
  }
}

TEST_P(StoreConformance, PushPullIntoAShiftedViewOfItsInput) {
  constexpr int64_t kCount = 100000;
  const NDArray memory = NDArray::Empty({kCount + 1});
  for (int64_t i = 0; i <= kCount; ++i)
    static_cast<float*>(memory.data())[i] = static_cast<float>(i);
  store_->Init(1, Full({kCount}, 0));
  const NDArray in = memory.Slice(0, kCount);
  const NDArray out = memory.Slice(1, kCount + 1);
  store_->PushPull(1, {&in, 1}, {&out, 1});
  EXPECT_EQ(Values(out)[static_cast<size_t>(kCount - 1)], static_cast<float>(kCount - 1));
  EXPECT_EQ(Values(out)[50000], 50000);
}

TEST_P(StoreConformance, PushPullMayPullOtherKeysThanItPushes) {
  InitFloats(1, {1});
  InitFloats(2, {2});
  const NDArray value = Floats({5});
  const NDArray out = Floats({0});
  const NDArray* pointers[] = {&value, &out};
  const PushItem push{1, {&pointers[0], 1}};
  const PullItem pull{2, {&pointers[1], 1}};
  store_->PushPull({&push, 1}, {&pull, 1});
  EXPECT_EQ(Values(out)[0], 2);
  EXPECT_EQ(Pulled(1)[0], 5);
}

// ------------------------------------------------------------------------------------------------------------
// updater

TEST_P(StoreConformance, TheUpdaterCombinesSumAndStored) {
  if (RefusesFunctions()) GTEST_SKIP() << "runs no functions of the caller";
  InitFloats("w", {1});
  store_->SetUpdater([](const KeyView& key, const NDArray& sum, const NDArray& stored) {
    EXPECT_EQ(key.ToString(), "'w'");
    BinaryInto(BinaryOp::kAdd, stored, Binary(BinaryOp::kMul, sum, 2), stored);
  });
  store_->Push("w", std::vector{Floats({1}), Floats({2})});
  EXPECT_EQ(Pulled("w"), (std::vector<float>{7}));
  store_->SetUpdater(nullptr);
  store_->Push("w", Floats({4}));
  EXPECT_EQ(Pulled("w"), (std::vector<float>{4}));
}

TEST_P(StoreConformance, AnUpdaterThatThrowsLeavesEveryKeyOfTheCall) {
  if (RefusesFunctions()) GTEST_SKIP() << "runs no functions of the caller";
  InitFloats(1, {1});
  InitFloats(2, {2});
  store_->SetUpdater([](const KeyView& key, const NDArray&, const NDArray& stored) {
    Fill(stored, 99);
    if (key == KeyView(2)) throw std::runtime_error("mine");
  });
  const NDArray value = Floats({5});
  const NDArray* pointer = &value;
  const PushItem items[] = {{1, {&pointer, 1}}, {2, {&pointer, 1}}};
  EXPECT_THROW(store_->Push(items), std::runtime_error);
  EXPECT_EQ(Pulled(1)[0], 1);
  EXPECT_EQ(Pulled(2)[0], 2);
}

TEST_P(StoreConformance, AnUpdaterMayUseOtherKeysButNotItsOwn) {
  if (RefusesFunctions()) GTEST_SKIP() << "runs no functions of the caller";
  InitFloats(1, {1});
  InitFloats(2, {2});
  store_->SetUpdater([&](const KeyView& key, const NDArray& sum, const NDArray& stored) {
    stored.CopyFrom(sum);
    if (!(key == KeyView(1))) return;
    store_->Push(2, sum);
    EXPECT_EQ(Pulled(2)[0], 7);
    EXPECT_FAILS(Code::kFailedPrecondition, store_->Push(1, sum));
    EXPECT_FAILS(Code::kFailedPrecondition, store_->Pull(1, sum));
    EXPECT_FAILS(Code::kFailedPrecondition, store_->Close());
  });
  store_->Push(1, Floats({7}));
  EXPECT_EQ(Pulled(1)[0], 7);
}

TEST_P(StoreConformance, WhatAnUpdaterKeepsIsNotTheStore) {
  if (RefusesFunctions()) GTEST_SKIP() << "runs no functions of the caller";
  InitFloats(1, {1});
  NDArray kept_sum, kept_stored;
  store_->SetUpdater([&](const KeyView&, const NDArray& sum, const NDArray& stored) {
    kept_sum = sum;
    kept_stored = stored;
    Fill(sum, -5);
    Fill(stored, 3);
  });
  const NDArray pushed = Floats({7});
  store_->Push(1, pushed);
  Fill(kept_stored, 100);
  EXPECT_EQ(Pulled(1)[0], 3);
  EXPECT_EQ(Values(pushed)[0], 7);
}

TEST_P(StoreConformance, OptimizersUpdateOnPush) {
  InitFloats(1, {1, 1});
  const auto sgd = Optimizer::Create("sgd", {{"learning_rate", 0.5}});
  store_->SetOptimizer(sgd);
  store_->Push(1, Floats({1, 2}));
  EXPECT_EQ(Pulled(1), (std::vector<float>{0.5, 0}));
  sgd->SetParam("learning_rate", 1);
  sgd->SetMultiplier("learning_rate", 1, 2);
  store_->Push(1, Floats({1, 2}));
  EXPECT_EQ(Pulled(1), (std::vector<float>{-1.5, -4}));
}

TEST_P(StoreConformance, AnotherOptimizerStartsWithFreshState) {
  InitFloats(1, {0});
  store_->SetOptimizer(Optimizer::Create("momentum", {{"learning_rate", 1}, {"momentum", 1}}));
  store_->Push(1, Floats({1}));
  store_->Push(1, Floats({1}));
  EXPECT_EQ(Pulled(1)[0], -3);
  store_->SetOptimizer(Optimizer::Create("momentum", {{"learning_rate", 1}, {"momentum", 1}}));
  store_->Push(1, Floats({1}));
  EXPECT_EQ(Pulled(1)[0], -4);
}

TEST_P(StoreConformance, AnOptimizerThatTheDTypeCannotHaveChangesNothing) {
  store_->Init(1, Full({2}, 5, DType::kI32));
  store_->SetOptimizer(Optimizer::Create("adam"));
  const auto failure = test::FailureOf([&] { store_->Push(1, Full({2}, 1, DType::kI32)); });
  EXPECT_EQ(failure.code, Code::kInvalidArgument);
  EXPECT_EQ(failure.message.substr(0, 8), "push 1: ") << failure.message;
  const NDArray out = Full({2}, 0, DType::kI32);
  store_->Pull(1, out);
  EXPECT_TRUE(SameBytes(out, Full({2}, 5, DType::kI32)));
}

TEST_P(StoreConformance, FusedPushPullEqualsPushThenPullForEveryOptimizer) {
  constexpr int64_t kCount = 150001;
  for (const char* name : {"sgd", "momentum", "adam", "test"}) {
    std::unique_ptr<KVStore> other = GetParam().make();
    store_ = GetParam().make();
    for (KVStore* store : {store_.get(), other.get()}) {
      store->Init(1, Full({kCount}, 0.5));
      store->SetOptimizer(Optimizer::Create(name));
    }
    const std::vector<NDArray> grads = {Full({kCount}, 0.3), Full({kCount}, -1.7)};
    const NDArray fused = Full({kCount}, 0);
    const NDArray separate = Full({kCount}, 0);
    for (int round = 0; round < 3; ++round) {
      store_->PushPull(1, grads, {&fused, 1});
      other->Push(1, grads);
      other->Pull(1, separate);
      ASSERT_TRUE(SameBytes(fused, separate)) << name;
    }
  }
}

TEST_P(StoreConformance, MultiPrecisionKeepsAMaster) {
  store_->Init(1, Full({1}, 2048, DType::kF16));
  store_->SetOptimizer(Optimizer::Create("test", {{"rescale_grad", 0.25}}, true));
  for (int i = 0; i < 16; ++i) store_->Push(1, Full({1}, 1, DType::kF16));
  const NDArray out = Full({1}, 0);
  store_->Pull(1, out);
  EXPECT_EQ(Values(out)[0], 2052);
}

// ------------------------------------------------------------------------------------------------------------
// threads

TEST_P(StoreConformance, ThreadsOnOneStoreLoseNothing) {
  InitFloats(1, {0});
  InitFloats(2, {0});
  store_->SetOptimizer(Optimizer::Create("test"));
  constexpr int kPushes = 300;
  const auto work = [&] {
    for (int i = 0; i < kPushes; ++i) {
      const NDArray one = Floats({1});
      const NDArray out = Floats({0});
      const NDArray* pointers[] = {&one, &out};
      const PushItem items[] = {{1, {pointers, 1}}, {2, {pointers, 1}}};
      store_->Push(items);
      store_->Pull(i % 2 + 1, out);
    }
  };
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
  EXPECT_EQ(Pulled(1)[0], 2 * kPushes);
  EXPECT_EQ(Pulled(2)[0], 2 * kPushes);
}

// ------------------------------------------------------------------------------------------------------------
// closing

TEST_P(StoreConformance, AClosedStoreRefusesEverything) {
  InitFloats(1, {0});
  store_->Close();
  store_->Close();
  const NDArray value = Floats({1});
  EXPECT_FAILS(Code::kFailedPrecondition, store_->Init(2, value));
  EXPECT_FAILS(Code::kFailedPrecondition, store_->Push(1, value));
  EXPECT_FAILS(Code::kFailedPrecondition, store_->Pull(1, value));
  EXPECT_FAILS(Code::kFailedPrecondition, store_->PushPull(1, {&value, 1}, {&value, 1}));
  EXPECT_FAILS(Code::kFailedPrecondition, store_->SetUpdater(nullptr));
  EXPECT_FAILS(Code::kFailedPrecondition, store_->Barrier());
  EXPECT_FAILS(Code::kFailedPrecondition, store_->Keys());
}

TEST_P(StoreConformance, ADeletedKeyCanBeMadeAnew) {
  InitFloats(1, {1, 2});
  store_->Push(1, Floats({3, 4}));
  store_->Delete(1);
  EXPECT_FALSE(store_->Contains(1));
  EXPECT_FAILS(Code::kNotFound, Pulled(1));
  EXPECT_FAILS(Code::kNotFound, store_->Delete(1));
  InitFloats(1, {5});
  EXPECT_EQ(Pulled(1), (std::vector<float>{5}));
}

TEST_P(StoreConformance, RoundCountsThePushesOfAKey) {
  InitFloats(1, {0});
  EXPECT_EQ(store_->Round(1), 0U);
  store_->Push(1, Floats({1}));
  store_->Push(1, Floats({1}));
  EXPECT_EQ(Pulled(1)[0], 1);
  EXPECT_EQ(store_->Round(1), 2U);
  EXPECT_FALSE(store_->rejoined());
}

TEST_P(StoreConformance, TicketsEndOnce) {
  InitFloats(1, {0});
  const NDArray value = Floats({2});
  const NDArray out = Floats({0});
  const NDArray* values[] = {&value};
  const NDArray* outs[] = {&out};
  const PushItem push{1, values};
  const PullItem pull{1, outs};
  const Ticket pushed = store_->PushAsync({&push, 1});
  const Ticket pulled = store_->PullAsync({&pull, 1});
  pulled->Wait(std::chrono::seconds(10));
  pushed->Wait(std::chrono::seconds(10));
  EXPECT_TRUE(pushed->done());
  EXPECT_EQ(Values(out)[0], 2);
  const Ticket both = store_->PushPullAsync({&push, 1}, {&pull, 1});
  both->Wait(std::chrono::seconds(10));
  EXPECT_TRUE(both->done());
}

TEST_P(StoreConformance, APushedArrayMayBeWrittenAtOnce) {
  InitFloats(1, {0});
  const NDArray value = Floats({1});
  for (int i = 1; i <= 50; ++i) {
    Fill(value, i);
    store_->Push(1, value);
  }
  Fill(value, -1);
  EXPECT_EQ(Pulled(1)[0], 50);
}

TEST_P(StoreConformance, RankAndBarrier) {
  EXPECT_GE(store_->num_workers(), 1);
  EXPECT_LT(store_->rank(), store_->num_workers());
  store_->Barrier();
}

// ------------------------------------------------------------------------------------------------------
// stats

TEST_P(StoreConformance, StatsCountCallsBytesAndRoundsExactly) {
  const NDArray value = Floats({1, 2, 3, 4, 5});  // 20 bytes
  store_->Init("w", value);
  store_->Init("v", Floats({1, 2}));
  for (int i = 0; i < 3; ++i) store_->Push("w", value);
  store_->Push("w", std::vector<NDArray>{value, value});  // one round of two arrays
  for (int i = 0; i < 4; ++i) Pulled("w");
  store_->PushPull("v", std::vector<NDArray>{Floats({1, 1})}, std::vector<NDArray>{Floats({0, 0})});
  EXPECT_FAILS(Code::kNotFound, store_->Push("none", value));
  store_->Barrier();
  const StoreStats stats = store_->Stats();
  const auto calls = [&](Verb verb) {
    return std::pair(stats.of(verb).calls, stats.of(verb).failed);
  };
  EXPECT_EQ(calls(Verb::kInit), std::pair(2UL, 0UL));
  EXPECT_EQ(calls(Verb::kPush), std::pair(5UL, 1UL));
  EXPECT_EQ(calls(Verb::kPull), std::pair(4UL, 0UL));
  EXPECT_EQ(calls(Verb::kPushPull), std::pair(1UL, 0UL));
  EXPECT_EQ(calls(Verb::kBarrier), std::pair(1UL, 0UL));
  EXPECT_EQ(calls(Verb::kBroadcast), std::pair(0UL, 0UL));
  EXPECT_EQ(stats.bytes.init_bytes, 28U);
  EXPECT_EQ(stats.bytes.pushed_bytes, 5 * 20U + 8U);
  EXPECT_EQ(stats.bytes.pulled_bytes, 4 * 20U + 8U);
  EXPECT_EQ(stats.rounds, 5U);
  EXPECT_EQ(stats.key_count, 2U);
  ASSERT_EQ(stats.keys.size(), 2U);
  EXPECT_EQ(stats.keys[0].key.text(), "w");
  EXPECT_EQ(stats.keys[0].rounds, 4U);
  EXPECT_EQ(stats.keys[0].bytes.pushed_bytes, 100U);
  EXPECT_EQ(stats.keys[1].rounds, 1U);
  EXPECT_GE(stats.age_seconds, 0);
}

TEST_P(StoreConformance, StatsKeepTheSumsOfDeletedKeysAndTheFailuresOfTickets) {
  InitFloats(1, {1, 2});
  store_->Push(1, Floats({1, 2}));
  Pulled(1);
  store_->Delete(1);
  InitFloats(1, {1, 2});
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.bytes.init_bytes, 16U);
  EXPECT_EQ(stats.bytes.pushed_bytes, 8U);
  EXPECT_EQ(stats.rounds, 1U);
  EXPECT_EQ(stats.key_count, 1U);
  EXPECT_EQ(stats.keys[0].rounds, 0U);
  EXPECT_EQ(stats.of(Verb::kDelete).calls, 1U);
  store_->Close();
  EXPECT_FAILS(Code::kFailedPrecondition, store_->Stats());
}

TEST_P(StoreConformance, StatsOfAStoreWithServersNameThemAndWhatWasSent) {
  const NDArray value = Full({1000}, 1);
  store_->Init(1, value);
  store_->Push(1, value);
  store_->Pull(1, value);
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.operations_under_way, 0U);
  EXPECT_EQ(stats.resends + stats.reconnects, 0U);
  if (GetParam().runs_functions) {  // of one process
    EXPECT_TRUE(stats.peers.empty());
    EXPECT_EQ(stats.traffic.wire_out_bytes, 0U);
    return;
  }
  ASSERT_GE(stats.peers.size(), 2U);
  EXPECT_EQ(stats.peers[0].name, "head");
  EXPECT_EQ(stats.peers[1].name, "server 0");
  uint64_t out = 0;
  for (const PeerStats& peer : stats.peers) {
    EXPECT_EQ(peer.state, peer.connections > 0 ? "open" : "idle") << peer.name;
    EXPECT_EQ(peer.queued_messages + peer.unanswered_messages + peer.unaccepted_bytes, 0U);
    out += peer.traffic.wire_out_bytes;
  }
  EXPECT_EQ(stats.traffic.wire_out_bytes, out);
  EXPECT_GE(out, 2 * value.bytes());  // the value and the push, with their heads
  EXPECT_GE(stats.traffic.wire_in_bytes, value.bytes());
  EXPECT_EQ(stats.of(WaitCause::kAnswer).count, 2U);  // init, pull
  EXPECT_GE(stats.of(WaitCause::kLink).count, 1U);
}

StoreOptions Threads(int threads) {
  StoreOptions options;
  options.threads = threads;
  return options;
}

StoreOptions Self(int servers) {
  StoreOptions options;
  options.bootstrap = "self";
  options.servers = servers;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreConformance,
    ::testing::Values(
        Subject{"local", [] { return KVStore::Create("local"); }},
        Subject{"device", [] { return KVStore::Create("device"); }},
        Subject{"local_one_thread", [] { return KVStore::Create("local", Threads(1)); }},
        Subject{"dist_sync", [] { return KVStore::Create("dist_sync", Self(2)); }, false},
        Subject{"dist_async", [] { return KVStore::Create("dist_async", Self(1)); }, false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tkv
