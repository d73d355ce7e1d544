// A lack of memory: a store that is dropped without close() does not end its process, and a save
// that fails leaves the store free for the next one.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/arrays.h"
#include "tests/cluster_fixture.h"
#include "tests/scarce_memory.h"

namespace tkv::testing {
namespace {

using test::Full;
using test::JobOf;

// Runs `drop` for a store, with memory for 0, 1, 2, ... allocations until it lacks none.
void DropWithScarceMemory(const std::function<void(std::unique_ptr<KVStore>)>& drop) {
  bool has_lacked = true;
  int allocations = 0;
  for (; has_lacked; ++allocations) {
    ASSERT_LT(allocations, 1000);
    Cluster cluster(JobOf(1, 1));
    std::unique_ptr<KVStore> store = cluster.Join(0);
    store->Init("w", Full({1000}, 0));
    store->Push("w", Full({1000}, 1));
    has_lacked = test::WithMemoryFor(allocations, [&] { drop(std::move(store)); }).ran_out;
  }
  EXPECT_GT(allocations, 5);
}

TEST(ADroppedStore, WithoutMemoryDoesNotEndItsProcess) {
  DropWithScarceMemory([](std::unique_ptr<KVStore> store) { store.reset(); });
}

TEST(ADroppedStore, OfAProgramThatFailsWithoutMemoryDoesNotEndItsProcess) {
  DropWithScarceMemory([](std::unique_ptr<KVStore> store) {
    const std::unique_ptr<KVStore> dropped = std::move(store);
    throw std::runtime_error("");
  });
}

// If memory ends while the client starts the push, the worker cannot go on.
TEST(APush, WithoutMemoryHasHadNoEffectOrEndsTheWorker) {
  ClusterOptions options = JobOf(1, 1);
  options.store.patience = options.store.server_patience = std::chrono::seconds(2);
  int failed = 0;
  int unharmed = 0;
  bool has_lacked = true;
  for (int allocations = 0; has_lacked; ++allocations) {
    ASSERT_LT(allocations, 1000);
    Cluster cluster(options);
    const std::unique_ptr<KVStore> store = cluster.Join(0);
    store->Init("w", Full({10}, 0));
    const NDArray value = Full({10}, 1);
    const test::Attempt attempt =
        test::WithMemoryFor(allocations, [&] { store->Push("w", value); });
    has_lacked = attempt.ran_out;
    if (attempt.succeeded) continue;
    ++failed;
    const NDArray out = Full({10}, 7);
    const test::Failure failure = test::FailureOf([&] { store->Pull("w", out); });
    if (failure.message.empty()) {
      ++unharmed;
      EXPECT_TRUE(test::SameBytes(out, Full({10}, 0))) << allocations;
    } else {
      EXPECT_EQ(failure.code, Code::kResourceExhausted) << allocations << failure.message;
    }
  }
  EXPECT_GT(failed, unharmed);
  EXPECT_GT(unharmed, 3);
}

// If memory ends within the node that this thread runs, the worker cannot go on.
TEST(AStore, SavesAfterASaveThatHasLackedMemory) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::string folder = mkdtemp(name.data());
  ClusterOptions options = JobOf(1, 1);
  options.store.snapshots = folder;
  options.store.snapshot_every = "1000";
  options.store.patience = options.store.server_patience = std::chrono::seconds(1);
  int saved_later = 0;
  // The servers keep the keys before, and the files are written afterwards.
  for (int allocations = 36; allocations < 56; ++allocations) {
    Cluster cluster(options);
    const std::unique_ptr<KVStore> store = cluster.Join(0);
    store->Init("w", Full({10}, 0));
    const test::Attempt attempt = test::WithMemoryFor(allocations, [&] { store->Save(folder); });
    if (attempt.succeeded) continue;
    try {
      store->Save(folder);
      ++saved_later;
    } catch (const Error& error) {
      const std::string text = error.what();
      ASSERT_EQ(text.find("of this store is under way"), std::string::npos) << allocations;
    }
  }
  EXPECT_GT(saved_later, 0);
}

}  // namespace
}  // namespace tkv::testing
