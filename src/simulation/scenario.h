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

// The value that an incarnation pushes as its n-th push of a key.  Element i is lane i % 8.  A
// sparse key has twelve lanes: every element of the row with id i is lane i.  Lanes are whole
// numbers that are exact in the key's dtype, even as a sum over workers.
inline constexpr size_t kLanes = 8;
inline constexpr size_t kRowIds = 12;
using Lanes = std::array<int64_t, kRowIds>;  // dense keys use the first kLanes
using RowSet = uint16_t;                     // bit i: the row with id i
inline constexpr RowSet kAllRows = (1U << kRowIds) - 1;
Lanes Contribution(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                   uint64_t round);
Lanes InitialValue(uint64_t seed, const SimKey& key);
// Returns which rows below kRowIds an INIT has.
RowSet InitialRows(uint64_t seed, const SimKey& key);
codec::Contribution Initial(uint64_t seed, const SimKey& key);
// Returns which rows a push has; all of them for a dense key.
RowSet Touched(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation, uint64_t round);
// Returns those of these rows that belong to a bucket, in the order in which they are sent.
std::vector<uint64_t> RowsOf(const SimKey& key, uint32_t chunk, RowSet rows);
// Returns the request of a pull of these rows, and the number of bytes that it receives.
codec::Contribution AskFor(const SimKey& key, RowSet rows);
size_t PulledBytes(const SimKey& key, RowSet rows);
size_t PulledBytes(const SimKey& key, uint32_t chunk, RowSet rows);
// Returns a push as it is sent, in an encoding that represents its lanes exactly.
codec::Contribution Encoded(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                            uint64_t round);

// Converts whole numbers to elements of a dtype, and back.
void Store(DType dtype, int64_t value, std::byte* target);
int64_t Load(DType dtype, const std::byte* source);
// Returns a whole number after conversion to the dtype and back.
int64_t Wrap(DType dtype, int64_t value);

}  // namespace tkv::simulation
