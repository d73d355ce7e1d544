// Threads push, pull, delete, create and close at any moment.  The test looks for memory errors: it
// runs under the sanitizers, or with freed memory poisoned.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/random.h"
#include "tests/arrays.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

constexpr int kKeys = 2;
constexpr int kRounds = 40;
constexpr int kCallsPerThread = 40;

// Makes one random call with random keys.
void CallSomething(KVStore& store, Random& random) {
  const NDArray a = test::Floats({1, 2});
  const NDArray b = test::Floats({3, 4});
  const NDArray* const arrays[] = {&a, &b};
  const auto key = random.Between(0, kKeys - 1);
  const PushItem pushes[] = {{key, arrays}, {(key + 1) % kKeys, arrays}};
  const PullItem pulls[] = {{key, {arrays, 1}}, {(key + 1) % kKeys, {arrays + 1, 1}}};
  switch (random.Between(0, 7)) {
    case 0:
      return store.Push(pushes);
    case 1:
      return store.Pull(pulls);
    case 2:
      return store.PushPull(pushes, pulls);
    case 3:
      return store.Delete(key);
    case 4:
      return store.Init(key, a);
    case 5:
      return store.SetOptimizer(Optimizer::Create("momentum"));
    case 6:
      return store.SetUpdater([&store](const KeyView&, const NDArray& sum, const NDArray& stored) {
        stored.CopyFrom(sum);
        // Long enough for others to wait for the key.
        for (int i = 0; i < 5; ++i) std::this_thread::yield();
        store.size();
      });
    default:
      static_cast<void>(store.Keys());
  }
}

// Returns true for the expected errors: a missing or existing key, a closed store, or an update of
// this key in progress.  Every other error is a fault.
bool IsExpected(Code code) {
  return code == Code::kNotFound || code == Code::kAlreadyExists ||
         code == Code::kFailedPrecondition;
}

TEST(StoreStress, AnythingAtAnyMomentWhileTheStoreIsClosed) {
  std::atomic<int> succeeded{0};
  for (int round = 0; round < kRounds; ++round) {
    const auto store = KVStore::Create("local");
    for (int key = 0; key < kKeys; ++key) store->Init(key, test::Floats({0, 0}));
    std::atomic<int> calls{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Random random(static_cast<uint64_t>(round * 4 + t));
        for (int i = 0; i < kCallsPerThread; ++i) {
          const auto failure = test::FailureOf([&] { CallSomething(*store, random); });
          if (!failure.code) ++succeeded;
          EXPECT_TRUE(!failure.code || IsExpected(*failure.code)) << failure.message;
          ++calls;
        }
      });
    }
    const int when = round * 4 * kCallsPerThread / kRounds;
    while (calls < when) std::this_thread::yield();
    store->Close();
    EXPECT_FAILS(Code::kFailedPrecondition, store->size());
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_GT(succeeded, kRounds) << "the calls did something";
}

TEST(StoreStress, PushesWhileAnUpdaterReplacesTheValue) {
  constexpr int kThreads = 3;
  constexpr int kPushes = 300;
  const auto store = KVStore::Create("local");
  store->Init(0, test::Floats({0, 0}));
  store->SetUpdater([](const KeyView&, const NDArray& sum, const NDArray& stored) {
    const auto* added = static_cast<const float*>(sum.data());
    auto* values = static_cast<float*>(stored.data());
    for (int64_t i = 0; i < stored.size(); ++i) values[i] += added[i];
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kPushes; ++i) store->Push(0, test::Floats({1, 2}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const NDArray out = test::Floats({0, 0});
  store->Pull(0, out);
  EXPECT_EQ(test::Values(out), (std::vector<float>{kThreads * kPushes, 2 * kThreads * kPushes}));
}

}  // namespace
}  // namespace tkv
