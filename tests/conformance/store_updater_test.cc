// Conformance of every store: updates of values by functions and optimizers.

#include <gtest/gtest.h>

#include "tests/conformance/store_conformance.h"

namespace tkv {
namespace {

using test::Floats;
using test::Full;
using test::SameBytes;
using test::Values;

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

TEST_P(StoreConformance, WhoUpdatesIsToldHowEachCallEnded) {
  if (RefusesFunctions()) GTEST_SKIP() << "runs no functions of the caller";
  for (int key = 1; key <= 3; ++key) InitFloats(key, {0});
  int failing = 0;
  std::vector<std::pair<size_t, bool>> ends;
  store_->SetUpdater(
      [&](const KeyView& key, const NDArray&, const NDArray&) {
        if (key == KeyView(failing)) throw std::runtime_error("mine");
      },
      [&](size_t returned, bool kept) { ends.emplace_back(returned, kept); });
  const NDArray value = Floats({5});
  const NDArray* pointer = &value;
  const PushItem items[] = {{1, {&pointer, 1}}, {2, {&pointer, 1}}, {3, {&pointer, 1}}};
  store_->Push(items);
  for (failing = 1; failing <= 3; ++failing) {
    EXPECT_THROW(store_->Push(items), std::runtime_error);
  }
  EXPECT_EQ(ends,
            (std::vector<std::pair<size_t, bool>>{{3, true}, {0, false}, {1, false}, {2, false}}));
  EXPECT_THROW(store_->Push(4, value), Error);  // before the updater is called
  EXPECT_EQ(ends.size(), 4u);
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

TEST_P(StoreConformance, AnUpdaterWithoutMemoryIsAnErrorOfItsKeyThatChangesNothing) {
  if (RefusesFunctions()) GTEST_SKIP() << "runs no functions of the caller";
  InitFloats(1, {1});
  store_->SetUpdater([](const KeyView&, const NDArray&, const NDArray& stored) {
    Fill(stored, 5);
    throw std::bad_alloc();
  });
  const auto failure = test::FailureOf([&] { store_->Push(1, Floats({7})); });
  EXPECT_EQ(failure.code, Code::kResourceExhausted);
  EXPECT_EQ(failure.message, "push 1: no memory for the updater");
  EXPECT_EQ(Pulled(1)[0], 1);
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
  store_->SetOptimizer(Optimizer::Create("momentum", {{"learning_rate", 1}, {"momentum", 0.5}}));
  store_->Push(1, Floats({1}));
  EXPECT_EQ(Pulled(1)[0], -4);
}

TEST_P(StoreConformance, AnEqualOptimizerKeepsItsState) {
  InitFloats(1, {0});
  for (const float value : {-1.0F, -3.0F, -6.0F}) {
    store_->SetOptimizer(Optimizer::Create("momentum", {{"learning_rate", 1}, {"momentum", 1}}));
    store_->Push(1, Floats({1}));
    EXPECT_EQ(Pulled(1)[0], value);
  }
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

}  // namespace
}  // namespace tkv
