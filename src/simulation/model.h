// What every value has to be: per chunk, which pushes of which lives of which workers each version
// is made of.  Knows the protocol's promises (G1 to G6), not its messages.

#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/shard.h"
#include "simulation/row_truth.h"
#include "simulation/scenario.h"

namespace tkv::simulation {

// One life of one worker.
struct Life {
  Rank rank = kNoRank;
  uint64_t incarnation = 0;
  auto operator<=>(const Life&) const = default;
};

// One push: `ordinal` counts the pushes of a life, whatever rounds they get.
struct Push {
  Life life;
  uint64_t ordinal = 0;
  auto operator<=>(const Push&) const = default;
};

class Model {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;         // a round that does not come
  static constexpr uint64_t kUnlisted = UINT64_MAX - 1;  // unless the key is made anew

  struct Control {
    Life life;
    uint64_t generation = 0;
    uint64_t last = 0;       // ordinal of the last push that the life was given before it
    bool is_repeat = false;  // said again by the client itself
    bool accumulate = false;
    std::vector<uint64_t> from_rounds;  // of each key; kNever: another store's
  };

  explicit Model(const Scenario& scenario) : scenario_(scenario) {}

  // ---- what the workers do
  void Created(size_t key);  // by an init; a key that has been deleted begins again
  void Deleted(size_t key);
  void Pushed(size_t key, Push push, uint64_t round);  // a first byte has left
  bool HasLeft(size_t key, Push push) const;
  // What this life has pushed in a round.
  std::optional<Push> PushOf(size_t key, Life life, uint64_t round) const;
  void Failed(size_t key, Push push);  // it may be in some chunks or in none
  void Accepted(size_t key, Push push, uint64_t round, const Placement& placement,
                const std::vector<const Shard*>& shards);
  void Controlled(Control control);
  void Withdrawn(Life life, uint64_t generation);
  void ControlFailed(Life life);  // it has been taken back everywhere
  void Made(size_t key);          // the INIT with which it appears has left
  // ---- what the servers do
  void Completed(const Shard& shard, const Epoch& head, const ChunkId& id, const Chunk& chunk);
  // ---- what the workers see
  // `last` is the ordinal of the worker's last accepted push of the key before it, or 0; `rows` are
  // those that it has asked for.
  void Pulled(size_t key, Life life, bool exact, uint64_t round, uint64_t last, const Bytes& bytes,
              RowSet rows = kAllRows);
  void Observed(size_t key, const Bytes& bytes);
  // Of a key by rows what servers have kept of each bucket: its parts as they were read, and the values of
  // all ids that count; `last` as for Pulled.
  void Kept(size_t key, Life life, uint64_t last, const std::vector<ChunkState>& states,
            const std::map<uint64_t, Block>& parts, const Bytes& by_ids);

  const std::string& violation() const { return violation_; }

 private:
  struct Version {
    Lanes lanes{};
    std::map<Rank, Push> from;  // whose pushes are in
    RowTruth rows;              // by rows
  };
  struct ChunkModel {
    uint64_t version = 0;
    std::map<uint64_t, Version> versions;
    std::map<Life, uint64_t> applied;     // async: the last push of each life
    std::map<Push, uint64_t> applied_in;  // and the version that each has made
  };
  struct KeyModel {
    std::vector<ChunkModel> chunks;
    std::map<uint64_t, std::set<Push>> pushed;  // by round
    std::set<Push> all;
    std::set<Push> failed;
    std::map<uint64_t, bool> rule_of_round;  // as the first chunk applied it
  };

  bool WasWhole(const SimKey& key, const KeyModel& model, const Bytes& bytes) const;
  std::string KeptOf(const SimKey& key, uint32_t index, const ChunkState& state,
                     const std::map<uint64_t, Bytes>& parts, const Version& version) const;
  void Violate(std::string text);
  void CheckOrder(size_t key, Push push, uint64_t round);
  bool RuleAt(size_t key, uint64_t round, const Epoch& head) const;
  std::string Describe(size_t key, uint32_t chunk, uint64_t version) const;
  void CompletedSync(const Shard& shard, const Epoch& head, size_t key, uint32_t index,
                     const Chunk& chunk);
  bool MayBeRule(const Epoch& seen, const Epoch& head, size_t key, bool accumulate) const;
  void CompletedAsync(const Shard& shard, const Epoch& head, size_t key, uint32_t index,
                      const Chunk& chunk);
  Version Result(const SimKey& key, uint32_t index, const Version& before, const Lanes& sum,
                 RowSet touched, bool accumulate) const;
  std::string Differs(const SimKey& key, uint32_t index, const Chunk& chunk, const Bytes& value,
                      const Version& version) const;

  const Scenario& scenario_;
  std::map<size_t, KeyModel> keys_;
  std::multimap<size_t, KeyModel> deleted_;
  std::vector<Control> controls_;
  std::vector<Control> withdrawn_;  // that may still be in force somewhere, for asynchronous keys
  std::string violation_;
};

}  // namespace tkv::simulation
