// Conformance of every store: calls of several threads, tickets, barriers and close.

#include <gtest/gtest.h>

#include <thread>

#include "tests/conformance/store_conformance.h"

namespace tkv {
namespace {

using test::Floats;
using test::Values;

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

TEST_P(StoreConformance, AnEndWithoutAFunctionIsRefused) {
  InitFloats(1, {0});
  const NDArray out = Floats({0});
  const NDArray* outs[] = {&out};
  const PullItem pull{1, outs};
  const Ticket pulled = store_->PullAsync({&pull, 1});
  EXPECT_FAILS(Code::kInvalidArgument, pulled->OnEnd({}));
  pulled->Wait(std::chrono::seconds(10));
  EXPECT_FAILS(Code::kInvalidArgument, pulled->OnEnd({}));
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

}  // namespace
}  // namespace tkv
