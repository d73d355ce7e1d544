// A store that is dropped without close() does not end its process, whatever it has no memory for.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>

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

}  // namespace
}  // namespace tkv::testing
