// For tests: the head, the servers and the workers of a job in one process, on threads.

#pragma once

#include <memory>
#include <string>

#include "tkv/api.h"
#include "tkv/kvstore.h"

namespace tkv::testing {

// A job among the threads of this process: servers and head have threads of their own, each worker
// is whoever uses its store.
struct ClusterOptions {
  int workers = 2;
  int servers = 1;
  std::string type = "dist_sync";
  StoreOptions store;  // of each worker
};

class TKV_API Cluster final {
 public:
  //   throws  kInvalidArgument
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // A new worker.  A rank that has a store already gets a later life, which ends the earlier one.
  //   blocks  until it has joined
  //   throws  kInvalidArgument (a rank that is not there), kDeadlineExceeded
  std::unique_ptr<KVStore> Join(int rank);
  // A store of an observer, as KVStore::Connect makes one.
  std::unique_ptr<KVStore> Observe(uint32_t store = 0);
  int workers() const;
  // Ends a server, as if its process had died.
  void KillServer(int index);
  // Ends the head: data goes on with a warning; nobody joins, is declared dead or changes the
  // optimizer any more.
  void KillHead();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tkv::testing
