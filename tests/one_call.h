// Keys of one call are updated as they are one by one, wherever their values are.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/arrays.h"
#include "tkv/kvstore.h"
#include "tkv/optimizer.h"

namespace tkv::test {

// They differ in multipliers, in updates so far, and in states that are scalars.
inline void CheckThatKeysHaveScalarsOfTheirOwn(Context where) {
  const std::vector<int64_t> keys = {0, 1, 2, 3, 4, 5};
  for (const char* const name : {"sgd", "adam", "nadam"}) {
    const NDArray gradient = Floats({1, -2, 3});
    const NDArray there = gradient.WithContext(where);
    const std::vector<const NDArray*> values = {&there};
    const auto together = KVStore::Create("device"), one_by_one = KVStore::Create("device");
    for (KVStore* const store : {together.get(), one_by_one.get()}) {
      for (const int64_t key : keys) store->Init(key, Floats({1, 2, 0}));
      const auto optimizer = Optimizer::Create(name);
      optimizer->SetMultiplier("learning_rate", 1, 0.5);
      optimizer->SetMultiplier("learning_rate", 3, -0.0);
      optimizer->SetMultiplier("learning_rate", 4, 0.0);
      store->SetOptimizer(optimizer);
      store->Push(2, gradient);  // an update ahead
    }
    std::vector<PushItem> items;
    for (const int64_t key : keys) items.push_back({key, values});
    for (int round = 0; round < 3; ++round) {
      together->Push(items);
      for (const int64_t key : keys) one_by_one->Push(key, gradient);
    }
    for (const int64_t key : keys) {
      const NDArray out = Floats({0, 0, 0}), expected = Floats({0, 0, 0});
      together->Pull(key, out);
      one_by_one->Pull(key, expected);
      EXPECT_TRUE(SameBytes(out, expected)) << name << ", key " << key;
    }
  }
}

}  // namespace tkv::test
