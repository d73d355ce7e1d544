// What a seed stands for: the job, its keys, the program that the workers run, and the faults.

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
  std::string name;  // canonical
  KeyMeta meta;
  bool accumulates = false;  // a CONTROL may make it `value += sum`, which is exact for this key
  bool encodes = false;      // each push of it chooses an encoding
  bool has_gaps = false;     // by rows: a push may bring nothing to a bucket
  // By rows: the INIT brings so many rows more, of the ids behind those that count.
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
    kSave,  // worker 0 has a version kept and reads it later
  };
  Kind kind{};
  size_t key = 0;
  uint64_t ordinal = 0;     // of this key's (or barrier's) pushes: this one, or the last one before
  bool accumulate = false;  // of a CONTROL
  uint32_t store = 0;       // whose keys a CONTROL is for; which one a kClose closes
};

struct Fault {
  enum class Kind : uint8_t {
    kDrop,       // a connection is lost with what is under way on it
    kDuplicate,  // frames of a link arrive twice for a while
    kDelay,      // everything is late for a while
    kSlow,       // one process is slow for a while
    kCut,        // nothing passes in one direction for a while
    kKill,       // a worker ends; its peers are told
    kVanish,     // a worker ends; nobody is told
    kKillServer,
    kKillHead,
    kPause,    // a worker is cut off for so long that it is held for dead, and comes back
    kIsolate,  // a worker loses one server for long, just when it sends a CONTROL
    kHaste,    // a worker's next life joins before its last messages and the news have arrived
  };
  static constexpr int kKinds = 12;
  Kind kind{};
  uint64_t at_event = 0;
  uint64_t choice = 0;
  bool restarts = false;
  bool of_observer = false;  // kDrop: the connection is one of an observer's
  bool of_all = false;       // kKill, kVanish: all workers end, and all have next lives
};
const char* Name(Fault::Kind kind);

struct Scenario {
  uint64_t seed = 0;
  int workers = 2;
  int servers = 1;
  bool observer = false;
  Epoch::Policy policy = Epoch::Policy::kFail;
  bool lives_return = false;  // a launcher starts workers again, under any policy
  size_t adopt_from_bytes = 0;
  size_t credit_bytes = 0;
  int outstanding = 1;  // operations that a worker has under way
  bool has_priorities = false;
  size_t pull_bytes_max = 0;
  bool tells_slowly = false;        // the head, of what changes while it pays for its last EPOCH
  bool has_hasty_controls = false;  // they do not wait until the worker's pushes have ended
  // A later life of worker 0 sends a CONTROL before its init of the key with this index.
  bool deletes_twice = false;  // whoever deletes a key does so again at once
  std::optional<size_t> control_before_init;
  bool early_accumulates = false;  // what that CONTROL says
  std::vector<SimKey> keys;
  std::vector<Step> steps;
  std::vector<size_t> step_counts;  // of each worker
  std::vector<Fault> faults;
};

Scenario MakeScenario(const testing::SimulationOptions& options);

// What a life of a worker pushes as its n-th push of a key: element i is lane i % 8; of a key by rows,
// which has twelve, every element of the row with the id i is lane i.  Whole numbers that are exact in
// the key's dtype, even as a sum over workers.
inline constexpr size_t kLanes = 8;
inline constexpr size_t kRowIds = 12;
using Lanes = std::array<int64_t, kRowIds>;  // of other keys the first kLanes count
using RowSet = uint16_t;                     // bit i: the row with the id i
inline constexpr RowSet kAllRows = (1U << kRowIds) - 1;
Lanes Contribution(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                   uint64_t round);
Lanes InitialValue(uint64_t seed, const SimKey& key);
// Which of the rows that count an INIT brings, by rows.
RowSet InitialRows(uint64_t seed, const SimKey& key);
codec::Contribution Initial(uint64_t seed, const SimKey& key);
// Which rows a push brings; all of a key that is not kept by rows.
RowSet Touched(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation, uint64_t round);
// The rows of these that a bucket has, in the order in which they travel.
std::vector<uint64_t> RowsOf(const SimKey& key, uint32_t chunk, RowSet rows);
// What a pull of these rows asks for, and how many bytes it gets.
codec::Contribution AskFor(const SimKey& key, RowSet rows);
size_t PulledBytes(const SimKey& key, RowSet rows);
size_t PulledBytes(const SimKey& key, uint32_t chunk, RowSet rows);
// The same push as it is sent, in an encoding that says its lanes exactly.
codec::Contribution Encoded(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                            uint64_t round);

// Whole numbers as elements of a dtype, and back.
void Store(DType dtype, int64_t value, std::byte* target);
int64_t Load(DType dtype, const std::byte* source);
// What is left of a whole number in the dtype.
int64_t Wrap(DType dtype, int64_t value);

}  // namespace tkv::simulation
