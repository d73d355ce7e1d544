// What a job is and does, as its head and its servers say.  docs/api.md lists each of these fields under
// the name that Python gives it.

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
  uint64_t life = 0;  // its number, which grows with each process that is this worker; 0: none yet
  // Since its process joined, to all servers that have been asked.
  uint64_t pushes = 0;  // of chunks
  uint64_t pushed_bytes = 0;
};

struct ServerStatus {
  std::string state;
  uint64_t life = 0;
  std::string address;
  std::string error;  // why it has not said what it holds; empty: it has
  uint64_t chunks = 0;
  uint64_t value_bytes = 0;  // of tables, too
  uint64_t other_bytes = 0;  // optimizers' states, sums of open rounds, kept versions
};

struct KeyStatus {
  uint32_t store = 0;  // the number of the store that made it, in the order of create()
  Key key;
  Shape shape;  // by rows of one row
  DType dtype{};
  bool by_rows = false;
  uint64_t row_count = 0;  // by rows
  bool is_async = false;
  uint32_t chunks = 0;
  uint64_t bytes = 0;    // in the servers' memory
  uint64_t round = 0;    // that all chunks have reached
  uint64_t newest = 0;   // that some have
  uint64_t waiting = 0;  // pulls that wait for a round

  TKV_API std::string ToJson() const;
};

// A round that some workers have pushed and others have not.
struct RoundStatus {
  uint32_t store = 0;
  std::string key;  // as errors show it: 3, 'w' or barrier
  uint64_t round = 0;
  double seconds = 0;          // since the first push of it came
  std::vector<int> waits_for;  // workers that have not pushed it, at most 16
  uint64_t waits_for_count = 0;
};

struct JobStatus {
  std::string url;
  std::string job;
  std::string on_death;
  uint64_t epoch = 0;        // grows with each change of the membership
  bool head_is_open = true;  // it can be reached now
  std::vector<WorkerStatus> workers;
  std::vector<ServerStatus> servers;
  uint64_t observers = 0;
  std::vector<KeyStatus> keys;
  std::vector<RoundStatus> rounds;  // the one that has been open longest comes first
  // The worker that most open rounds wait for; -1: none waits.
  int slowest = -1;
  uint64_t slowest_rounds = 0;
  double slowest_seconds = 0;  // since when the oldest of them is open

  // What an operator is to know first: the head is out of reach, a server does not live or does not answer,
  // a worker is awaited or dead.  Empty: all is well.
  TKV_API std::string wrong() const;
  // One JSON object with these fields, in one line.
  TKV_API std::string ToJson() const;
};

}  // namespace tkv
