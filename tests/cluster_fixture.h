// Helpers for tests that run the workers of a job as threads.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tkv/testing.h"

namespace tkv::test {

// Returns the options of a job, whose calls fail after 30 seconds.
inline testing::ClusterOptions JobOf(int workers, int servers, const char* type = "dist_sync") {
  testing::ClusterOptions options;
  options.workers = workers;
  options.servers = servers;
  options.type = type;
  options.store.patience = std::chrono::seconds(30);
  return options;
}

// Runs body(store) for each worker on a thread of its own, closes the stores, and waits for all.
inline void EachWorker(testing::Cluster* cluster, const std::function<void(KVStore*)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < cluster->workers(); ++rank) {
    threads.emplace_back([cluster, rank, &body] {
      const auto store = cluster->Join(rank);
      EXPECT_EQ(store->rank(), rank);
      body(store.get());
      store->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tkv::test
