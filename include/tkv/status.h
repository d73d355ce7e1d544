// The state of a job as its head and its servers report it.  docs/api.md lists each of these fields
// under the name that Python gives it.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tkv/api.h"
#include "tkv/dtype.h"
#include "tkv/key.h"
#include "tkv/shape.h"

namespace tkv {

struct WorkerStatus {
  std::string state;  // awaited, alive, dead, left or lost
  uint64_t life = 0;  // number of its incarnation: grows with each process; 0: none yet
  // Received by all servers that answered, since the worker's process joined.
  uint64_t pushes = 0;  // pushes of chunks
  uint64_t pushed_bytes = 0;
};

struct ServerStatus {
  std::string state;
  uint64_t life = 0;
  std::string address;
  std::string error;  // why its numbers are missing; empty: they are present
  uint64_t chunks = 0;
  uint64_t value_bytes = 0;  // values, with those of tables
  uint64_t other_bytes = 0;  // optimizers' states, sums of open rounds, kept versions
};

struct KeyStatus {
  uint32_t store = 0;  // number of the store that created it, in the order of create()
  Key key;
  Shape shape;  // if by_rows, of one row
  DType dtype{};
  bool by_rows = false;
  uint64_t row_count = 0;  // if by_rows: ids are below it
  bool is_async = false;
  uint32_t chunks = 0;
  uint64_t bytes = 0;    // in the servers' memory
  uint64_t round = 0;    // the round that all chunks have reached
  uint64_t newest = 0;   // the newest round of any chunk
  uint64_t waiting = 0;  // pulls that wait for a round

  TKV_API std::string ToJson() const;
};

// A round that some workers have pushed and others have not.
struct RoundStatus {
  uint32_t store = 0;
  std::string key;  // as errors show it: 3, 'w' or barrier
  uint64_t round = 0;
  double seconds = 0;          // since its first push arrived
  std::vector<int> waits_for;  // workers that have not pushed it, at most 16
  uint64_t waits_for_count = 0;
};

struct JobStatus {
  std::string url;
  std::string job;
  std::string on_death;
  uint64_t epoch = 0;        // grows with each change of the membership
  bool head_is_open = true;  // this process can reach the head
  std::vector<WorkerStatus> workers;
  std::vector<ServerStatus> servers;
  uint64_t observers = 0;
  std::vector<KeyStatus> keys;
  std::vector<RoundStatus> rounds;  // the longest open one first
  // The worker for which most open rounds wait; -1: none.
  int slowest = -1;
  uint64_t slowest_rounds = 0;
  double slowest_seconds = 0;  // since the oldest of them was opened

  // Returns the most urgent problem; empty: none.  Problems are a head that cannot be reached, a
  // server that is not alive or does not answer, and a worker that is neither alive nor has left.
  TKV_API std::string wrong() const;
  // Returns a JSON object with these fields, in one line.
  TKV_API std::string ToJson() const;
};

}  // namespace tkv
