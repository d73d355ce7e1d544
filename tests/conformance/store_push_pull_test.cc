// Conformance of every store: the effect of a push on the value, and the result of a pull.

#include <gtest/gtest.h>

#include "tests/conformance/store_conformance.h"

namespace tkv {
namespace {

using test::Floats;
using test::Full;
using test::SameBytes;
using test::Values;

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

// Longer than a tile, and enough bytes for a fused call.
constexpr int64_t kLong = 300000;

TEST_P(StoreConformance, AnInPlaceOutputThatOverlapsTheValueOfAnotherKeyChangesNoSum) {
  const NDArray memory = Full({kLong * 3 / 2}, 3);
  const NDArray x = memory.Slice(0, kLong);
  const NDArray y =
      memory.Slice(kLong / 2, kLong * 3 / 2);  // its first half is the second half of x
  const NDArray z = Full({kLong}, 0);
  store_->Init(1, Full({kLong}, 0));
  store_->Init(2, Full({kLong}, 0));
  store_->SetOptimizer(Optimizer::Create("test", {{"rescale_grad", 2.0}}));
  const NDArray* values[] = {&y, &x};
  const NDArray* outs[] = {&y, &z};
  const PushItem pushes[] = {{1, {&values[0], 1}}, {2, {&values[1], 1}}};
  const PullItem pulls[] = {{1, {&outs[0], 1}}, {2, {&outs[1], 1}}};
  store_->PushPull(pushes, pulls);
  EXPECT_TRUE(SameBytes(y, Full({kLong}, 6)));
  EXPECT_TRUE(SameBytes(z, Full({kLong}, 6)));
}

TEST_P(StoreConformance, TheLaterOfTwoOutputsThatOverlapWins) {
  const NDArray value = Full({kLong}, 0);
  for (int64_t i = 0; i < kLong; ++i) static_cast<float*>(value.data())[i] = static_cast<float>(i);
  store_->Init(1, value);
  const NDArray memory = Full({kLong * 3 / 2}, 0);
  const NDArray first = memory.Slice(0, kLong);
  const NDArray second = memory.Slice(kLong / 2, kLong * 3 / 2);
  for (const auto& [earlier, later] : {std::pair(first, second), std::pair(second, first)}) {
    const NDArray* outs[] = {&earlier, &later};
    const PullItem pulls[] = {{1, outs}};
    store_->Pull(pulls);
    EXPECT_TRUE(SameBytes(later, value));
  }
}

TEST_P(StoreConformance, AListMayGrowAndShrinkBetweenPushes) {
  InitFloats(3, {0});
  for (size_t n : {4, 1, 20, 2, 9}) {
    store_->Push(3, std::vector<NDArray>(n, Floats({1})));
    EXPECT_EQ(Pulled(3), (std::vector<float>{static_cast<float>(n)}));
  }
}

TEST_P(StoreConformance, AnErrorOfAListSaysWhichArrayItIs) {
  InitFloats(3, {1, 2});
  const auto pushed =
      test::FailureOf([&] { store_->Push(3, std::vector{Floats({1, 1}), Floats({1})}); });
  EXPECT_EQ(pushed.message, "push 3: shape (1,), the key has (2,) (value 1 of 2, counted from 0)");
  const NDArray fits = Full({2}, 0), longer = Full({3}, 0);
  const NDArray* outs[] = {&longer, &fits};
  const PullItem pulls[] = {{3, outs}};
  const auto pulled = test::FailureOf([&] { store_->Pull(pulls); });
  EXPECT_EQ(pulled.message,
            "pull 3: the output has shape (3,), the key has (2,) (output 0 of 2, counted from 0)");
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

TEST_P(StoreConformance, AnOutputWhoseElementsShareMemoryIsRefusedAndIsAValue) {
  const Shape shape{2, 3};
  const auto layout = [&](std::vector<float>* memory, const Strides& strides) {
    return NDArray::Wrap(memory->data(), shape, DType::kF32, {}, false, nullptr, strides);
  };
  store_->Init(1, Full(shape, 5));
  for (const Strides& strides : {Strides{0, 1}, Strides{1, 0}, Strides{1, 1}, Strides{2, 1}}) {
    std::vector<float> memory(6, 1);
    const NDArray expanded = layout(&memory, strides);
    const NDArray* outs[] = {&expanded};
    const PullItem pull{1, outs};
    const InitItem init{7, &expanded};
    const PullItem new_pull{7, outs};
    EXPECT_FAILS(Code::kInvalidArgument, store_->Pull(1, expanded));
    EXPECT_FAILS(Code::kInvalidArgument, store_->PullAsync({&pull, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->PushPull(1, {&expanded, 1}, {&expanded, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->PushPullAsync({}, {&pull, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->Broadcast({&init, 1}, {&new_pull, 1}));
    EXPECT_FALSE(store_->Contains(7));
    EXPECT_EQ(memory, std::vector<float>(6, 1));
    EXPECT_EQ(Pulled(1)[0], 5);
    store_->Push(1, expanded);
    EXPECT_EQ(Pulled(1), std::vector<float>(6, 1));
    store_->Push(1, Full(shape, 5));
  }
  for (const Strides& strides : {Strides{1, 2}, Strides{4, 1}, Strides{3, 2}, Strides{-3, 1}}) {
    std::vector<float> memory(16, 0);
    const NDArray spread =
        NDArray::Wrap(memory.data() + 3, shape, DType::kF32, {}, false, nullptr, strides);
    store_->Pull(1, spread);
    EXPECT_EQ(Values(spread), std::vector<float>(6, 5));
  }
}

// Pushes some rows of one element to the keys "w", whose pushes replace all rows, and "t".
void PushToBoth(KVStore* store, const std::vector<int64_t>& ids, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(ids.size());
  const Rows rows{NDArray::FromBytes(ids.data(), {count}, DType::kI64),
                  NDArray::FromBytes(values.data(), {count, 1}, DType::kF32)};
  const Rows* const list[] = {&rows};
  const RowsPushItem items[] = {{"w", list}, {"t", list}};
  store->PushRows(items);
}

TEST_P(StoreConformance, APushReplacesAllRowsOfAKeyThatSaysSo) {
  const int64_t firsts[] = {0, 2};
  const Rows first{NDArray::FromBytes(firsts, {2}, DType::kI64), Full({2, 1}, 9)};
  RowsInitItem tables[] = {{"w", {1}, DType::kF32, 4}, {"t", {1}, DType::kF32, 4}};
  for (RowsInitItem& table : tables) table.rows = &first;
  tables[0].policy.replaces_all = true;
  store_->InitRows(tables);
  const auto both = [&] {
    std::vector<float> all;
    for (const char* key : {"w", "t"}) {
      const NDArray out = NDArray::Empty({4, 1}, DType::kF32);
      store_->Pull(key, out);
      for (const float value : Values(out)) all.push_back(value);
    }
    return all;
  };
  using Expected = std::vector<float>;
  PushToBoth(store_.get(), {3, 1, 3}, {1, 2, 3});
  EXPECT_EQ(both(), (Expected{0, 2, 0, 4, 9, 2, 9, 4}));
  PushToBoth(store_.get(), {0}, {5});
  EXPECT_EQ(both(), (Expected{5, 0, 0, 0, 5, 2, 9, 4}));
  PushToBoth(store_.get(), {}, {});
  EXPECT_EQ(both(), (Expected{0, 0, 0, 0, 5, 2, 9, 4}));
  TableStats stats = store_->StatsOfTable("w");
  EXPECT_EQ(stats.rows, 0U);
  EXPECT_EQ(stats.evicted, 0U);
  EXPECT_EQ(stats.version, store_->StatsOfTable("t").version);
  for (const char* key : {"w", "t"}) store_->Push(key, Full({4, 1}, 7));
  EXPECT_EQ(both(), Expected(8, 7));
  store_->SetOptimizer(Optimizer::Create("test"));
  PushToBoth(store_.get(), {2}, {1});
  EXPECT_EQ(both(), (Expected{7, 7, 8, 7, 7, 7, 8, 7}));
}

TEST_P(StoreConformance, AKeyWhoseRowsAreReplacedAdmitsEachId) {
  RowsInitItem table{"w", {1}, DType::kF32, 4};
  table.policy.replaces_all = true;
  table.policy.admit_count = 2;
  EXPECT_FAILS(Code::kInvalidArgument, store_->InitRows({&table, 1}));
  EXPECT_FALSE(store_->Contains("w"));
}

TEST_P(StoreConformance, RowsArePulledIntoNoArrayWhoseElementsShareMemory) {
  const RowsInitItem table{.key = 1, .row_shape = Shape({3}), .row_count = 9};
  store_->InitRows({&table, 1});
  const int64_t numbers[] = {3, 4};
  const NDArray ids = NDArray::FromBytes(numbers, {2}, DType::kI64);
  for (const Strides& strides : {Strides{0, 1}, Strides{1, 0}, Strides{1, 1}, Strides{2, 1}}) {
    std::vector<float> memory(6, 1);
    const NDArray expanded =
        NDArray::Wrap(memory.data(), {2, 3}, DType::kF32, {}, false, nullptr, strides);
    const RowsPullItem pull{1, &ids, &expanded};
    EXPECT_FAILS(Code::kInvalidArgument, store_->PullRows({&pull, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->PullRowsAsync({&pull, 1}));
    EXPECT_EQ(memory, std::vector<float>(6, 1));
  }
}

TEST_P(StoreConformance, WhatIsNoArrayIsRefusedInEveryVerb) {
  InitFloats(1, {5});
  NDArray source = Floats({1});
  const NDArray target = std::move(source);
  const NDArray none;
  const NDArray& moved = source;  // NOLINT(bugprone-use-after-move): the subject of the test
  for (const NDArray* wrong : {static_cast<const NDArray*>(nullptr), &none, &moved}) {
    const NDArray* arrays[] = {&target, wrong};
    const InitItem inits[] = {{8, &target}, {9, wrong}};
    const RowsInitItem rows_init{.key = 9, .value = wrong};
    const InitItem assigned{1, wrong};
    const PushItem push{1, arrays};
    const PullItem pull{1, arrays};
    const PullItem good_pull{8, {&arrays[0], 1}};
    EXPECT_FAILS(Code::kInvalidArgument, store_->Init(inits));
    if (wrong != nullptr) EXPECT_FAILS(Code::kInvalidArgument, store_->InitRows({&rows_init, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->Push({&push, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->Pull({&pull, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->PushPull({&push, 1}, {&pull, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->PullAsync({&pull, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->Broadcast(inits, {&good_pull, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->Broadcast({inits, 1}, {&pull, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->Assign({&assigned, 1}));
  }
  EXPECT_EQ(store_->Keys().size(), 1U);
  EXPECT_EQ(Pulled(1)[0], 5);
  EXPECT_EQ(Values(target)[0], 1);
}

TEST_P(StoreConformance, RowsThatAreNoArraysAreRefused) {
  const RowsInitItem table{.key = 1, .row_shape = Shape({2}), .row_count = 9};
  store_->InitRows({&table, 1});
  const int64_t id = 3;
  const NDArray ids = NDArray::FromBytes(&id, {1}, DType::kI64);
  const NDArray row = Full({1, 2}, 4);
  const Rows no_ids{{}, row};
  const Rows no_values{ids, {}};
  for (const Rows* wrong : {static_cast<const Rows*>(nullptr), &no_ids, &no_values}) {
    const RowsPushItem push{1, {&wrong, 1}};
    EXPECT_FAILS(Code::kInvalidArgument, store_->PushRows({&push, 1}));
  }
  const NDArray none;
  for (const NDArray* wrong : {static_cast<const NDArray*>(nullptr), &none}) {
    const RowsPullItem without_ids{1, wrong, &row};
    const RowsPullItem without_out{1, &ids, wrong};
    EXPECT_FAILS(Code::kInvalidArgument, store_->PullRows({&without_ids, 1}));
    EXPECT_FAILS(Code::kInvalidArgument, store_->PullRows({&without_out, 1}));
  }
}

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

// A call makes all of its pushes before its pulls, even if keys share arrays.
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

TEST_P(StoreConformance, RoundCountsThePushesOfAKey) {
  InitFloats(1, {0});
  EXPECT_EQ(store_->Round(1), 0U);
  store_->Push(1, Floats({1}));
  store_->Push(1, Floats({1}));
  EXPECT_EQ(Pulled(1)[0], 1);
  EXPECT_EQ(store_->Round(1), 2U);
  EXPECT_FALSE(store_->rejoined());
}

}  // namespace
}  // namespace tkv
