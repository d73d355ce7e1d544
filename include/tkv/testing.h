// For tests: the head, the servers and the workers of a job in one process, on threads.

#pragma once

#include <memory>
#include <string>

#include "tkv/api.h"
#include "tkv/kvstore.h"

namespace tkv::testing {

// Options of a job in one process.  The servers and the head have their own threads; a worker is
// any thread that uses the worker's store.
struct ClusterOptions {
  int workers = 2;
  int servers = 1;
  std::string type = "dist_sync";
  StoreOptions store;  // options of each worker
};

class TKV_API Cluster final {
 public:
  // Starts the head and the servers.
  //   throws  kInvalidArgument
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Returns the store of a new worker.  If the rank already has a store, the new worker is its next
  // incarnation, and the old store stops working.
  //   blocks  until it has joined
  //   throws  kInvalidArgument (no such rank), kDeadlineExceeded
  std::unique_ptr<KVStore> Join(int rank);
  // Returns the store of an observer, as KVStore::Connect does.
  std::unique_ptr<KVStore> Observe(uint32_t store = 0);
  int workers() const;
  // Ends a server as if its process had died.
  void KillServer(int index);
  // Ends the head.  Pushes and pulls continue with a warning, but no process can join or be
  // declared dead, and the optimizer cannot change any more.
  void KillHead();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tkv::testing
