// Judges a run only from the histories of its clients.  Every pulled value has to be an
// exactly-once sum of the pushes of its round, and a worker has to read its own writes.
// Independent of the model, which knows the servers.
//
// source  the idea of checking histories from the outside: Herlihy and Wing 1990; Jepsen

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulation/scenario.h"
#include "simulation/sim_values.h"

namespace tkv::simulation {

// An operation of a worker on one chunk of a key with exact reads.
struct HistoryEvent {
  enum class Kind : uint8_t { kPush, kPull };
  Kind kind{};
  uint64_t worker = 0;  // each incarnation is a worker of its own
  uint64_t object = 0;  // the chunk; a recreated key has new objects
  uint64_t begin = 0;   // position of its beginning in the log
  uint64_t end = 0;     // position of its end in the log; 0: not ended
  bool failed = false;  // a failed push may count in any one round, or in none
  uint64_t round = 0;   // the round reported to the client; 0: none
  Lanes value{};        // the pushed or pulled value
  // The rank of the worker.  An unended or failed push takes the place of a later one in the same
  // round, of the same or a later incarnation.
  Rank rank = kNoRank;
};

struct History {
  std::vector<HistoryEvent> events;
  // The initial value of each object.
  std::vector<std::pair<uint64_t, Lanes>> initial;
  // Number of lanes that every object has.
  size_t lanes = 8;
  DType dtype = DType::kI64;
};

// Returns an empty text if the history is correct, or its first fault.
std::string JudgeHistory(const History& history);

}  // namespace tkv::simulation
