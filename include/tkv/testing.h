// For tests: a whole cluster in one thread, driven by a seed.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

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

class Cluster final {
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

struct SimulationOptions {
  uint64_t seed = 1;
  int workers = 0;  // 0: the seed chooses, 2 to 5
  int servers = 0;  // 0: the seed chooses, 1 to 4
  int steps = 0;    // of each worker's program; 0: the seed chooses
  // Names of faults, or "all"; empty: none.  Names are those of FaultNames().
  std::string faults = "all";
  bool trace = false;  // keep the text of the last events
};

// How often a message of a type met a receiver in a state while a fault was at work.
struct CoverageCell {
  std::string fault;
  std::string receiver;  // head, server or client
  std::string message;
  std::string state;
  uint64_t count = 0;
};

struct SimulationReport {
  uint64_t seed = 0;
  bool passed = false;
  std::string violation;  // what guarantee was broken, where it was
  uint64_t hash = 0;      // of everything that happened: equal runs have equal hashes
  uint64_t events = 0;
  uint64_t operations = 0;  // that ended
  uint64_t failed_operations = 0;
  uint64_t faults = 0;  // that took place
  double virtual_seconds = 0;
  std::vector<std::string> trace;
  std::vector<CoverageCell> coverage;
};

// Runs one seed to its end.  Deterministic: the same options give the same report.
//   throws  kInvalidArgument  an unknown fault, fewer than 1 worker or server
SimulationReport Simulate(const SimulationOptions& options);

std::span<const char* const> FaultNames() noexcept;

// Every order in which the events of a small job can happen.
struct ExplorationReport {
  std::string scope;
  bool passed = false;
  std::string violation;
  uint64_t states = 0;  // that differ
  uint64_t transitions = 0;
  uint64_t ends = 0;               // states in which everybody has come to an end
  uint64_t depth = 0;              // of the longest shortest way to a state
  std::vector<std::string> trace;  // a shortest way to the violation
};

// Names of the jobs that can be explored; the large ones take hours.
std::vector<std::string> ExplorationNames(bool large);

// Explores one of them, breadth first.
//   throws  kInvalidArgument  there is none of that name
//   throws  kResourceExhausted  it has more states
ExplorationReport Explore(const std::string& name, uint64_t states_max = uint64_t{1} << 31);

}  // namespace tkv::testing
