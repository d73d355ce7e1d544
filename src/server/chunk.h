// A chunk of a key on its shard: the stored value, the optimizer state, the open rounds and the
// waiting pulls.  This file knows nothing of links.
//
// A chunk is a value type: copies share their blocks, and a change to a shared block goes to a new
// block.  So an outgoing VALUE keeps the old version, and a test can copy a whole cluster.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/small_vector.h"
#include "codec/rows.h"
#include "rows/row_table.h"
#include "rows/sparse_sum.h"
#include "server/rule.h"
#include "wire/effects.h"
#include "wire/message.h"

namespace tkv {

// Prefetches memory that will be read soon.
void Prefetch(const void* at, size_t bytes);

// The identity of a sender: one incarnation of a worker, or an observer (rank kNoRank).
struct SessionId {
  Rank rank = kNoRank;
  uint64_t incarnation = 0;
  auto operator<=>(const SessionId&) const = default;
};

// A pull that waits until the chunk has its version.
struct ParkedPull {
  SessionId session;
  uint64_t seq = 0;
  uint64_t min_version = 0;
  uint64_t need = 0;     // seq of an operation of the session that must be done first; 0: none
  bool no_body = false;  // kNoBody: the answer has no value
  bool anyway = false;   // kAnyway: the answer has no error even if the round's update failed
  bool cuts = false;     // kCut: the shard keeps the answered version
  std::vector<uint64_t> mixes = {};  // by rows: mixes of the wanted ids
};

// The elements of a chunk in the layout of its key: one block, or a table of rows.  Only
// ChunkEditor changes them; other code reads elements as the body of a VALUE.
class ChunkData {
 public:
  ChunkData() = default;
  bool by_rows() const { return rows_.has_value(); }
  Bytes Read() const { return dense_.bytes(); }    // dense only
  const RowTable& rows() const { return *rows_; }  // by rows only
  size_t memory_bytes() const { return by_rows() ? rows_->memory_bytes() : dense_.size; }
  void Prefetch() const;

 private:
  friend class ChunkEditor;
  friend class StateWriter;  // for checks
  explicit ChunkData(Block dense) : dense_(std::move(dense)) {}
  Block dense_;
  std::optional<RowTable> rows_;
};

// The hyperparameters of a push.
struct Scalars {
  // nullopt: the worker has set no optimizer, or the server knows its hyperparameters already.  An
  // empty list: the worker's program has no hyperparameters.
  std::optional<std::vector<double>> numbers;
  uint64_t rule = 0;  // UpdateSpec::Digest of the worker's optimizer; 0: it has not said
};

// The pushes of workers for one round.
struct Round {
  SmallVector<uint64_t, 1> arrived;  // bit r: rank r's push has arrived
  uint32_t count = 0;                // number of pushes that have arrived
  Time since = 0;                    // arrival of the first push
  ChunkData sum;                     // in the compute type, added in order of arrival
  SparseSum rows;                    // the sum of a key by rows
  // The runs of all pushes.  Valid while `is_in_runs`: every push so far is encoded in runs.
  std::vector<codec::Run> runs;
  bool is_in_runs = true;
  std::vector<std::pair<Rank, codec::Part>> held;  // deterministic: each push, not yet summed
  // A set of hyperparameters, with the lowest rank that sent this set.  The set of the round's
  // lowest rank applies.  No values: those of the rule.
  struct Hyperparameters {
    Rank rank = kNoRank;
    Scalars scalars;
  };
  SmallVector<Hyperparameters, 1> hyperparameters;
  // Errors that workers brought to a barrier.  The round ends with `failure`, or, if no worker has
  // done the barrier's task, with `undone`, which the lowest rank brought.
  std::optional<Error> failure;
  std::optional<std::pair<Rank, Error>> undone;
  bool is_done = false;  // a worker has done the barrier's task

  bool Has(Rank rank) const;
  void Set(Rank rank);
  void Unset(Rank rank);
};

// The rule and state that an asynchronous chunk had before it tried a new rule.  They return if the
// sender of the new rule withdraws it.
struct FormerRule {
  RulePtr tried;           // the new rule
  RulePtr rule;            // the former rule
  bool has_state = false;  // the new rule does not continue the state, so this struct keeps it
  std::vector<Block> states;
  Block master;
  uint64_t updates = 0;
  std::optional<RowTable> rows;  // by rows, if the rows have states or masters
  uint64_t version = 0;          // version of the chunk when the new rule began
};

// The complete state of one chunk on its shard.
struct Chunk {
  size_t elements = 0;  // by rows: elements of one row
  DType dtype{};
  ChunkData value;
  uint64_t version = 0;
  uint64_t base = 0;     // as in ChunkStatus
  uint64_t author = 0;   // number of the grant that wrote the initial value
  uint64_t stream = 0;   // the key's stream of random numbers
  uint64_t begin = 0;    // index of the first element in the key's value
  codec::Bucket bucket;  // by rows

  RulePtr rule;               // null: assign
  std::vector<Block> states;  // by rows: only the scalars
  Block master;               // f32 copy of a 16-bit value, if the rule needs one
  uint64_t updates = 0;       // number of updates by this rule
  uint64_t control = 0;       // number of the last CONTROL applied to this chunk
  std::optional<FormerRule> former;
  std::vector<double> params;  // hyperparameters of the last update, for DESCRIBE

  SmallVector<Round, 1> rounds;  // rounds[i] is round version + 1 + i
  std::vector<ParkedPull> parked;
  std::optional<Error> failure;  // error of the update that made this version
  // The step of each rank's last push, by rank.  Empty until a push belongs to a step.
  std::vector<PushStep> steps;

  size_t bytes() const { return elements * ItemSize(dtype); }
  bool HasArrived(uint64_t round, Rank rank) const;
  uint64_t LastArrived(Rank rank) const;  // the last of its open rounds without a gap, or `version`
};

// A version of a chunk that the shard keeps so that a worker can read it in parts.
struct ChunkCut {
  uint64_t seq = 0;  // seq of the PULL that made the cut
  uint32_t store = 0;
  DType dtype{};
  ChunkState state;
  ChunkData value;
  Block master;
  std::vector<Block> states;
  codec::Bucket bucket;  // by rows

  // Returns a part, or nullopt if there is no such part.  By rows, only scalars are available here.
  std::optional<Bytes> Part(uint64_t part) const;
};

// The operations that change chunks, and read their rows.  Blocks come from the pool.  A body of at
// least `adopt_from_bytes` without other owners becomes a block without a copy.
class ChunkEditor {
 public:
  ChunkEditor(BufferPool* pool, size_t adopt_from_bytes, std::shared_ptr<RowDisk> disk = nullptr)
      : pool_(pool), adopt_from_bytes_(adopt_from_bytes), disk_(std::move(disk)) {}

  // Sets the initial value.
  void Start(Chunk* chunk, Bytes body);
  // Creates the table of a bucket with the initial rows in the body.
  //   throws  as codec::MixesOf, kInvalidArgument (an initializer that the dtype does not have),
  //           kResourceExhausted
  void StartRows(Chunk* chunk, const KeyMeta& meta, const Bytes& body);
  // Returns the values of rows, in the order of `mixes`.
  //   throws  kResourceExhausted
  Bytes ReadRows(const Chunk& chunk, std::span<const uint64_t> mixes);
  // Adds a push to an open round that has no push of this rank.  codec::Judge has accepted the
  // push.
  //   throws  kInvalidArgument (bool values cannot be summed; positions that are not the chunk's),
  //           kResourceExhausted; nothing changed
  void Contribute(Chunk* chunk, size_t round_index, Rank rank, codec::Part part, Scalars scalars,
                  bool deterministic);
  // Does Contribute to the first round and then Complete, in one pass over memory if the part is
  // tiled.
  //   throws  as Contribute, and kResourceExhausted if the update has no memory; nothing changed
  void ContributeLast(Chunk* chunk, Rank rank, codec::Part part, Scalars scalars);
  // Takes the memory for the update of the first round, before its last push is noted.
  //   throws  kResourceExhausted; the value is the same
  void MakeUpdateRoom(Chunk* chunk);
  // Updates the value with the first round, removes the round, and increments the version.  If the
  // update fails, the value stays and `failure` keeps the error.
  void Complete(Chunk* chunk);
  // Updates the value of an asynchronous chunk with one push, and increments the version.
  //   throws  as the update and as Contribute; nothing changed
  void Apply(Chunk* chunk, Rank rank, codec::Part part, const Scalars& scalars);

  // Sets the rule of the chunk.  Deletes the state if the new rule does not continue it.
  void SetRule(Chunk* chunk, RulePtr rule);
  // Sets a rule of an asynchronous chunk that TakeBack can undo.  Keeps the former rule and state
  // in `former` until then.
  void TryRule(Chunk* chunk, const RulePtr& rule);
  // Undoes TryRule.  The value keeps the updates since then.  Call it only if `former` is set.
  static void TakeBack(Chunk* chunk);

  // Returns the current version as a cut, which shares the blocks of the chunk.
  static ChunkCut Cut(const Chunk& chunk, uint32_t store);
  // Returns one part of a range of rows of a cut by rows.  The cut has all rows of the range.
  //   throws  kResourceExhausted
  Bytes ReadCut(const ChunkCut& cut, uint64_t part, const RowRange& rows);
  // Does as ReadRows, from a cut.
  Bytes ReadCutRows(const ChunkCut& cut, std::span<const uint64_t> mixes);
  // Sets value and state from the parts in the body.  The version stays.
  //   adds    by rows: keeps the existing rows
  //   throws  kInvalidArgument (the parts do not fit the chunk or its rule), kFailedPrecondition
  //           (the state belongs to another rule), kResourceExhausted; nothing changed
  void Restore(Chunk* chunk, const ChunkState& state, const Bytes& body, bool adds = false);
  // Replaces the value of a dense chunk and keeps its states and counts.  The next update makes a
  // new float32 master from the value, if the rule needs one.
  //   throws  kInvalidArgument (a key by rows, another number of bytes), std::bad_alloc; nothing
  //           changed
  void Assign(Chunk* chunk, const Bytes& body);
  // Resets the rows in the body: they get the values that follow their ids, and fresh state.  Other
  // rows and the counts stay.
  //   throws  kInvalidArgument, as codec::MixesOf, kResourceExhausted; nothing changed
  void ReplaceRows(Chunk* chunk, const ChunkState& state, const Bytes& body);

  // Returns a body that remains valid.  Copies a body without an owner, because it is only lent.
  Bytes Keep(Bytes body);

 private:
  bool CanAdopt(const Bytes& body) const;
  Block Adopt(Bytes body) const;
  Block CopyOf(const Block& block);
  struct Positions {  // positions or runs that a part names
    std::vector<uint32_t> positions;
    std::vector<codec::Run> runs;
  };
  static Positions PositionsOf(const Chunk& chunk, const codec::Part& part);
  static void AddAt(const Chunk& chunk, const codec::Part& part, const Positions& places,
                    Block* sum);
  using Runs = std::optional<std::vector<codec::Run>>;  // nullopt: all elements
  static Runs RunsOf(const Chunk& chunk, const codec::Part& part);
  static void AddRunsOf(const Runs& runs, Round* round) noexcept;
  static Runs ChangedBy(const Chunk& chunk, const Round& round, std::span<const codec::Part> parts);
  Block SumOf(const Chunk& chunk, codec::Part part);
  void AddOnto(const Chunk& chunk, const codec::Part& part, Block* sum);
  void CheckSummable(const Chunk& chunk, size_t round_index) const;
  static Round::Hyperparameters* FindHyperparameters(Round* round, const Scalars& scalars);
  static void ReserveForPush(Round* round, Rank rank, const Scalars& scalars, const Runs& runs);
  static void MarkArrived(Round* round, Rank rank, Scalars scalars) noexcept;
  static void CheckNoHyperparameters(Rank rank, const Scalars& scalars);
  static void CheckFits(const Rule& rule, Rank rank, const Scalars& scalars);
  static const std::vector<double>& DecideHyperparameters(const Rule& rule, const Round& round);
  void Update(Chunk* chunk, const Block& sum, std::span<const codec::Part> parts,
              const std::vector<double>& params, size_t count, const Runs& runs);
  void AssignSum(Chunk* chunk, Block sum, std::span<const codec::Part> parts);
  enum class WithoutMemory : uint8_t { kFails, kStays };
  std::optional<Error> FinishRound(Chunk* chunk, Round* round, std::span<const codec::Part> parts,
                                   WithoutMemory lacks = WithoutMemory::kFails);
  void ContributeLastRows(Chunk* chunk, Round* round, Rank rank, const codec::Part& part,
                          Scalars scalars);
  void FinishDense(Chunk* chunk, const Round& round, Block sum, std::span<const codec::Part> parts);
  void FinishRows(Chunk* chunk, const Round& round, const SparseSum& sum);
  // chunk_rows.cc
  static void CheckRows(const Chunk& chunk, const codec::Part& part);
  static SparseSum RowsOf(const Chunk& chunk, const codec::Part& part, SparseSum::Memory memory);
  void RestoreRows(Chunk* chunk, const ChunkState& state, const Bytes& body, bool adds);
  static void TakeBackRows(Chunk* chunk, FormerRule* former);
  void AssignRows(Chunk* chunk, const SparseSum& sum);
  void UpdateRows(Chunk* chunk, const SparseSum& sum, const std::vector<double>& params,
                  size_t count);
  void PrepareState(Chunk* chunk);

  BufferPool* pool_;
  size_t adopt_from_bytes_;
  std::shared_ptr<RowDisk> disk_;
};

}  // namespace tkv
