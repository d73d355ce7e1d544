// One chunk of one key on its shard: the stored value, its state, the rounds that are open, and who
// waits for it.  Knows nothing of sessions or links.
//
// A value type: copies share their blocks, and whoever changes a block that is shared takes a new
// one (so a VALUE on its way out keeps the old version, and a whole cluster can be copied).

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

// Asks for memory that will be read soon.
void Prefetch(const void* at, size_t bytes);

// Who sent something: one life of a worker, or an observer (rank kNoRank).
struct SessionId {
  Rank rank = kNoRank;
  uint64_t incarnation = 0;
  auto operator<=>(const SessionId&) const = default;
};

// A pull that waits for its version.
struct ParkedPull {
  SessionId session;
  uint64_t seq = 0;
  uint64_t min_version = 0;
  uint64_t need = 0;
  bool no_body = false;
  bool anyway = false;  // also of a round whose update has failed
  bool cuts = false;
  std::vector<uint64_t> mixes = {};  // by rows, of those that are asked for
};

// The elements of a chunk in the layout of its key: one block, or a table of rows.  Only ChunkWorker
// looks inside; everybody else reads elements as the body of a VALUE.
class ChunkData {
 public:
  ChunkData() = default;
  bool by_rows() const { return rows_.has_value(); }
  Bytes Read() const { return dense_.bytes(); }    // not by rows
  const RowTable& rows() const { return *rows_; }  // by rows
  size_t memory_bytes() const { return by_rows() ? rows_->memory_bytes() : dense_.size; }
  void Prefetch() const;

 private:
  friend class ChunkWorker;
  friend class StateWriter;  // for checks
  explicit ChunkData(Block dense) : dense_(std::move(dense)) {}
  Block dense_;
  std::optional<RowTable> rows_;
};

// The hyperparameters that come with a push: nothing where its worker has set no optimizer of its
// own, or has said so before.  Those of a program may be none.
using Scalars = std::optional<std::vector<double>>;

// What workers have pushed for one round.
struct Round {
  SmallVector<uint64_t, 1> arrived;  // bit r: rank r's push is in
  uint32_t count = 0;                // of pushes that are in
  Time since = 0;                    // when the first one came
  ChunkData sum;                     // of the compute type, in order of arrival
  SparseSum rows;                    // the same, by rows
  // What pushes in runs have brought, while there are no others.
  std::vector<codec::Run> runs;
  bool is_in_runs = true;
  std::vector<std::pair<Rank, codec::Part>> held;  // deterministic: each push by itself
  // Hyperparameters, each with the lowest rank that sent them: those of the lowest of all decide.
  // Nothing means those of the rule.
  struct Hyperparameters {
    Rank rank = kNoRank;
    Scalars values;
  };
  SmallVector<Hyperparameters, 1> hyperparameters;
  // That a worker has brought to a barrier: the round ends with it, or with `undone` where nobody
  // who has come had done what the barrier is for.
  std::optional<Error> failure, undone;
  bool is_done = false;

  bool Has(Rank rank) const;
  void Set(Rank rank);
};

// What was in force in an asynchronous chunk before a rule whose sender may still take it back.
struct FormerRule {
  RulePtr tried;  // that took its place
  RulePtr rule;
  bool has_state = false;  // the tried rule does not go on with it, so it is kept here
  std::vector<Block> states;
  Block master;
  uint64_t updates = 0;
  std::optional<RowTable> rows;  // by rows, where updates kept something in them
  uint64_t version = 0;          // that the rule was tried at
};

struct Chunk {
  size_t elements = 0;  // by rows of one row
  DType dtype{};
  ChunkData value;
  uint64_t version = 0;
  uint64_t base = 0;     // as of a ChunkStatus
  uint64_t author = 0;   // number of the grant that the initial value was written with
  uint64_t stream = 0;   // of the key, for draws
  uint64_t begin = 0;    // of the first element in the value
  codec::Bucket bucket;  // by rows

  RulePtr rule;               // null: assign
  std::vector<Block> states;  // by rows the scalars alone
  Block master;               // f32 copy of a 16-bit value, where the rule asks for one
  uint64_t updates = 0;       // by this rule
  uint64_t control = 0;       // number of the last CONTROL that was applied here
  std::optional<FormerRule> former;
  std::vector<double> params;  // hyperparameters of the last update, for those who ask

  SmallVector<Round, 1> rounds;  // rounds[i] is round version + 1 + i
  std::vector<ParkedPull> parked;
  std::optional<Error> failure;  // of the update that made this version
  // The step of each rank's last push, by rank; empty while no push has belonged to a step.
  std::vector<PushStep> steps;

  size_t bytes() const { return elements * ItemSize(dtype); }
  bool HasArrived(uint64_t round, Rank rank) const;
  uint64_t LastArrived(Rank rank) const;  // the last open round without a gap, or `version`
};

// One version of a chunk, kept to be read in parts.
struct ChunkCut {
  uint64_t seq = 0;  // of the PULL that has made it
  uint32_t store = 0;
  DType dtype{};
  ChunkState state;
  ChunkData value;
  Block master;
  std::vector<Block> states;
  codec::Bucket bucket;  // by rows

  // Nothing where there is no such part.  By rows scalars alone.
  std::optional<Bytes> Part(uint64_t part) const;
};

// Changes to chunks.  Blocks come from the pool; bodies of at least `adopt_from_bytes` that nobody
// else holds are taken over instead of copied.
class ChunkWorker {
 public:
  ChunkWorker(BufferPool* pool, size_t adopt_from_bytes, std::shared_ptr<RowDisk> disk = nullptr)
      : pool_(pool), adopt_from_bytes_(adopt_from_bytes), disk_(std::move(disk)) {}

  // The initial value.
  void Start(Chunk* chunk, Bytes body);
  // The same of a bucket, whose initial rows the body has.
  //   throws  as codec::MixesOf, kInvalidArgument (an initializer that the dtype does not have),
  //           kResourceExhausted
  void StartRows(Chunk* chunk, const KeyMeta& meta, const Bytes& body);
  // The rows that a pull asks for, in its order.
  //   throws  kResourceExhausted
  Bytes ReadRows(const Chunk& chunk, std::span<const uint64_t> mixes);
  // Adds a push to an open round that lacks the rank.  codec::Judge has found nothing wrong with it.
  //   throws  kInvalidArgument (bool values cannot be summed; positions that are not the chunk's),
  //           kResourceExhausted; nothing changed
  void Contribute(Chunk* chunk, size_t round_index, Rank rank, codec::Part part, Scalars scalars,
                  bool deterministic);
  // Contribute to the first round, then Complete it: one pass over memory, where the part is tiled.
  void ContributeLast(Chunk* chunk, Rank rank, codec::Part part, Scalars scalars);
  // Applies the first round and closes it; version grows by one.  An update that fails leaves the
  // value and is remembered in `failure`.
  void Complete(Chunk* chunk);
  // Async: one push is one version.
  //   throws  what the update throws, and as Contribute; nothing changed
  void Apply(Chunk* chunk, Rank rank, codec::Part part, const Scalars& scalars);

  void SetRule(Chunk* chunk, RulePtr rule);
  // Sets a rule that TakeBack can undo, with the state that was there before.
  void TryRule(Chunk* chunk, const RulePtr& rule);
  static void TakeBack(Chunk* chunk);

  static ChunkCut Cut(const Chunk& chunk, uint32_t store);
  // A part of rows of a cut by rows, all of which it has.
  //   throws  kResourceExhausted
  Bytes ReadCut(const ChunkCut& cut, uint64_t part, const RowRange& rows);
  // Values of rows of a cut by rows, as ReadRows.
  Bytes ReadCutRows(const ChunkCut& cut, std::span<const uint64_t> mixes);
  // Value and state as the body has them, part by part; the version stays.
  //   adds    of rows: those that are there stay
  //   throws  kInvalidArgument (what the rule keeps is something else), kFailedPrecondition (it is
  //           another rule's), kResourceExhausted; nothing changed
  void Restore(Chunk* chunk, const ChunkState& state, const Bytes& body, bool adds = false);
  // Replaces the value of a dense chunk and keeps its states and counts.  A float32 master is made
  // anew from the value by the next update.
  //   throws  kInvalidArgument (a key by rows, another number of bytes), std::bad_alloc; nothing has
  //           changed
  void Assign(Chunk* chunk, const Bytes& body);
  // Rows begin anew with the values that the body has behind their ids.  All else stays.
  //   throws  kInvalidArgument, as codec::MixesOf, kResourceExhausted; nothing changed
  void ReplaceRows(Chunk* chunk, const ChunkState& state, const Bytes& body);

  // The body as one that stays: a body without an owner is lent for the moment, and is copied.
  Bytes Keep(Bytes body);

 private:
  bool CanAdopt(const Bytes& body) const;
  Block Adopt(Bytes body) const;
  Block CopyOf(const Block& block);
  struct Places {  // that a part names
    std::vector<uint32_t> positions;
    std::vector<codec::Run> runs;
  };
  static Places PlacesOf(const Chunk& chunk, const codec::Part& part);
  static void AddAt(const Chunk& chunk, const codec::Part& part, const Places& places, Block* sum);
  using Runs = std::optional<std::vector<codec::Run>>;  // nothing: all elements
  static Runs RunsOf(const Chunk& chunk, const codec::Part& part);
  static void NoteRuns(const Runs& runs, Round* round) noexcept;
  static Runs ChangedBy(const Chunk& chunk, const Round& round, std::span<const codec::Part> parts);
  Block SumOf(const Chunk& chunk, codec::Part part);
  void AddOnto(const Chunk& chunk, const codec::Part& part, Block* sum);
  void CheckSummable(const Chunk& chunk, size_t round_index) const;
  static Round::Hyperparameters* Known(Round* round, const Scalars& scalars);
  static void MakeRoom(Round* round, Rank rank, const Scalars& scalars, const Runs& runs);
  static void Note(Round* round, Rank rank, Scalars scalars) noexcept;
  static void CheckNobodyUpdates(Rank rank, const Scalars& scalars);
  static void CheckFits(const Rule& rule, Rank rank, const Scalars& scalars);
  static const std::vector<double>& DecideHyperparameters(const Rule& rule, const Round& round);
  void Update(Chunk* chunk, const Block& sum, std::span<const codec::Part> parts,
              const std::vector<double>& params, size_t count, const Runs& runs);
  void Assign(Chunk* chunk, Block sum, std::span<const codec::Part> parts);
  void Finish(Chunk* chunk, Round* round, std::span<const codec::Part> parts);
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
