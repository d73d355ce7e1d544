// Makes the scenario of a seed: the job, its keys, the program of the workers, and the faults.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "codec/codec.h"
#include "tkv/simulation.h"
#include "wire/message.h"

namespace tkv::simulation {

// Seeds of separate random sequences: for the encodings of pushes, and for the rows of sparse keys.
inline constexpr uint64_t kEncodings = 0x656E636F6465;
inline constexpr uint64_t kRowDraws = 0x726F7773;
// The ids of a sparse key below this one are those that workers push.
inline constexpr size_t kRowIds = 12;

struct SimKey {
  std::string name;  // the canonical name
  KeyMeta meta;
  bool accumulates = false;  // a CONTROL may set `value += sum`, which is exact for this key
  bool encodes = false;      // each push of the key draws an encoding
  bool has_gaps = false;     // sparse keys: a push may send a bucket no row
  // Sparse keys: the INIT has so many additional rows, with ids of kRowIds and above.
  size_t other_rows = 0;
};

struct Step {
  enum class Kind : uint8_t {
    kPush,
    kPull,
    kPushPull,
    kWait,
    kBarrier,
    kControl,
    kRecreate,
    kClose,
    kSave,  // worker 0 saves a version and reads it later
  };
  Kind kind{};
  size_t key = 0;
  uint64_t ordinal = 0;     // ordinal of this push (or barrier) or of the last one before this step
  bool accumulate = false;  // kControl: the update accumulates
  uint32_t store = 0;       // the store of a kControl or kClose
};

struct Fault {
  enum class Kind : uint8_t {
    kDrop,       // a connection is lost with its frames in transit
    kDuplicate,  // frames of a link arrive twice for a while
    kDelay,      // everything is late for a while
    kSlow,       // one process is slow for a while
    kCut,        // no frame passes in one direction for a while
    kKill,       // a worker ends; its peers see closed connections
    kVanish,     // a worker ends; no peer notices
    kKillServer,
    kKillHead,
    kPause,    // a worker is cut off until it is declared dead, and returns
    kIsolate,  // a worker loses one server for long, just after it begins a CONTROL
    // A worker's next incarnation joins before its last messages and the news of its end arrive.
    kHaste,
    kRefuse,  // a server has no memory for some pushes of synchronous keys for a while
  };
  static constexpr int kKinds = 13;
  Kind kind{};
  uint64_t at_event = 0;
  uint64_t choice = 0;
  bool restarts = false;
  bool of_observer = false;  // kDrop: a connection of an observer
  bool of_all = false;       // kKill, kVanish: all workers end and are started again
};
const char* Name(Fault::Kind kind);

struct Scenario {
  uint64_t seed = 0;
  int workers = 2;
  int servers = 1;
  bool observer = false;
  Epoch::Policy policy = Epoch::Policy::kFail;
  bool lives_return = false;  // a launcher restarts workers, under any policy
  size_t adopt_from_bytes = 0;
  size_t credit_bytes = 0;
  int outstanding = 1;  // operations that a worker runs at once
  bool has_priorities = false;
  size_t pull_bytes_max = 0;
  bool tells_slowly = false;        // the head sends EPOCHs at a limited rate
  bool has_hasty_controls = false;  // CONTROLs do not wait until the worker's pushes have ended
  bool deletes_twice = false;       // a worker that deletes a key deletes it again at once
  // A later incarnation of worker 0 sends a CONTROL before its init of the key with this index.
  std::optional<size_t> control_before_init;
  bool early_accumulates = false;  // that CONTROL accumulates
  std::vector<SimKey> keys;
  std::vector<Step> steps;
  std::vector<size_t> step_counts;  // number of steps of each worker
  std::vector<Fault> faults;
};

Scenario MakeScenario(const testing::SimulationOptions& options);

}  // namespace tkv::simulation
