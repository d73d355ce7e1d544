// Judges what clients saw, and nothing else: every pulled value is an exactly-once sum of the
// pushes of its round, and a worker reads what it has written.  Independent of the model, which
// knows the servers.
//
// source  the idea of checking histories from the outside: Herlihy and Wing 1990; Jepsen

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulation/scenario.h"

namespace tkv::simulation {

// One operation of one worker on one chunk of a key with exact reads.
struct HistoryEvent {
  enum class Kind : uint8_t { kPush, kPull };
  Kind kind{};
  uint64_t worker = 0;  // each life is a worker of its own
  uint64_t object = 0;  // the chunk; a key that is made anew has new ones
  uint64_t begin = 0;   // position in the log
  uint64_t end = 0;     // 0: it has not ended
  bool failed = false;  // a push that failed may count, or not, in any one round
  uint64_t round = 0;   // as the client was told; 0: it was not
  Lanes value{};        // pushed, or seen
};

struct History {
  std::vector<HistoryEvent> events;
  std::vector<std::pair<uint64_t, Lanes>> initial;  // of each object
  size_t lanes = 8;                                 // that have a meaning, of every object
  DType dtype = DType::kI64;
};

// Empty, or what is wrong with the history.
std::string JudgeHistory(const History& history);

}  // namespace tkv::simulation
