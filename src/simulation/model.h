// Predicts every value: for each chunk, the pushes that made each version.  Knows the protocol's
// promises, not its messages.

#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/shard.h"
#include "simulation/row_truth.h"
#include "simulation/scenario.h"
#include "simulation/sim_values.h"

namespace tkv::simulation {

// An incarnation of a worker.
struct Life {
  Rank rank = kNoRank;
  uint64_t incarnation = 0;
  auto operator<=>(const Life&) const = default;
};

// A push; `ordinal` counts the pushes of an incarnation, whatever rounds they get.
struct Push {
  Life life;
  uint64_t ordinal = 0;
  auto operator<=>(const Push&) const = default;
};

class Model {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;         // a round that never comes
  static constexpr uint64_t kUnlisted = UINT64_MAX - 1;  // counts only if the key is created later

  struct Control {
    Life life;
    uint64_t generation = 0;
    uint64_t last = 0;       // ordinal of the incarnation's last push before this CONTROL
    bool is_repeat = false;  // sent again by the client itself
    bool accumulate = false;
    // For each key, the first round; kNever: a key of another store.
    std::vector<uint64_t> from_rounds;
  };

  explicit Model(const Scenario& scenario) : scenario_(scenario) {}

  // ---- what the workers do
  void Created(size_t key);  // by an init; a deleted key begins again
  void Deleted(size_t key);
  void Pushed(size_t key, Push push, uint64_t round);  // its first byte has been sent
  bool HasLeft(size_t key, Push push) const;
  // Returns the last push of an incarnation in a round, or nothing.
  std::optional<Push> PushOf(size_t key, Life life, uint64_t round) const;
  void Failed(size_t key, Push push);   // some chunks, all or none may have it
  void Refused(size_t key, Push push);  // a server refused it; the worker pushes again
  void Accepted(size_t key, Push push, uint64_t round, const Placement& placement,
                const std::vector<const Shard*>& shards);
  void Controlled(Control control);
  void Withdrawn(Life life, uint64_t generation);
  void ControlFailed(Life life);  // it was withdrawn on every server
  void Made(size_t key);          // the INIT that creates it has been sent
  // ---- what the servers do
  void Completed(const ShardCore& shard, const Epoch& head, const ChunkId& id, const Chunk& chunk);
  // ---- what the workers see
  // Checks a pulled value.
  //   last  ordinal of the worker's last accepted push of the key before the pull, or 0
  //   rows  the requested rows
  void Pulled(size_t key, Life life, bool exact, uint64_t round, uint64_t last, const Bytes& bytes,
              RowSet rows = kAllRows);
  void Observed(size_t key, const Bytes& bytes);
  // Checks a saved version of a sparse key.
  //   last    as for Pulled
  //   states  the saved state of each bucket
  //   parts   the parts of the buckets, as they were read
  //   by_ids  the values of all ids that count
  void Kept(size_t key, Life life, uint64_t last, const std::vector<ChunkState>& states,
            const std::map<uint64_t, Block>& parts, const Bytes& by_ids);

  const std::string& violation() const { return violation_; }

 private:
  struct Version {
    Lanes lanes{};
    std::map<Rank, Push> from;  // the pushes that it contains
    RowTruth rows;              // only for a sparse key
  };
  struct ChunkModel {
    uint64_t version = 0;
    std::map<uint64_t, Version> versions;
    std::map<Life, uint64_t> applied;     // async: last push of each incarnation
    std::map<Push, uint64_t> applied_in;  // async: the version that each push has made
  };
  struct KeyModel {
    std::vector<ChunkModel> chunks;
    std::map<uint64_t, std::set<Push>> pushed;  // sent pushes, by round
    std::set<Push> all;
    std::set<Push> failed;
    std::set<Push> refused;
    std::map<uint64_t, bool> rule_of_round;  // as applied by the first chunk
  };

  static bool IsRepeat(const KeyModel& model, Push push, uint64_t round);
  void CheckWhole(const SimKey& key, const KeyModel& model, uint32_t index, uint64_t round,
                  const std::string& where);
  bool WasWhole(const SimKey& key, const KeyModel& model, const Bytes& bytes) const;
  std::string KeptOf(const SimKey& key, uint32_t index, const ChunkState& state,
                     const std::map<uint64_t, Bytes>& parts, const Version& version) const;
  void Violate(std::string text);
  void CheckOrder(size_t key, Push push, uint64_t round);
  bool RuleAt(size_t key, uint64_t round, const Epoch& head) const;
  std::string Describe(size_t key, uint32_t chunk, uint64_t version) const;
  void CompletedSync(const ShardCore& shard, const Epoch& head, size_t key, uint32_t index,
                     const Chunk& chunk);
  bool MayBeRule(const Epoch& seen, const Epoch& head, size_t key, bool accumulate) const;
  void CompletedAsync(const ShardCore& shard, const Epoch& head, size_t key, uint32_t index,
                      const Chunk& chunk);
  Version Result(const SimKey& key, uint32_t index, const Version& before, const Lanes& sum,
                 RowSet touched, bool accumulate, bool has_pushes) const;
  std::string Differs(const SimKey& key, uint32_t index, const Chunk& chunk, const Bytes& value,
                      const Version& version) const;

  const Scenario& scenario_;
  std::map<size_t, KeyModel> keys_;
  std::multimap<size_t, KeyModel> deleted_;
  std::vector<Control> controls_;
  // Withdrawn CONTROLs that may still be in force on some server, for asynchronous keys.
  std::vector<Control> withdrawn_;
  std::string violation_;
};

}  // namespace tkv::simulation
