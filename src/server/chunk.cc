#include "server/chunk.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/memory_error.h"
#include "kernels/kernels.h"
#include "update/state.h"

namespace tkv {
namespace {

using kernels::Write;

constexpr int kOneThread = 1;  // a shard is one thread

bool IsSame(const std::vector<double>& a, const std::vector<double>& b) {
  const auto is_same = [](double x, double y) {  // a NaN equals itself
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same);
}

// Adds the body to the sum, whose type may be wider.
void AddDense(DType dtype, const std::byte* body, Block* sum, size_t count) {
  const DType compute = ComputeType(dtype);
  if (compute == dtype) {
    const void* both[] = {sum->data, body};
    return kernels::Sum(dtype, both, sum->data, count, Write::kCached);
  }
  constexpr size_t kTile = 2048;
  float wide[kTile];
  for (size_t at = 0; at < count; at += kTile) {
    const size_t length = std::min(kTile, count - at);
    const void* part[] = {body + at * ItemSize(dtype)};
    kernels::Sum(dtype, part, wide, length, Write::kCached);
    const void* both[] = {sum->as<float>() + at, wide};
    kernels::Sum(compute, both, sum->as<float>() + at, length, Write::kCached);
  }
}

// The sources of a job, and their encodings if one of them is not dense.
struct Sources {
  explicit Sources(std::span<const codec::Part> parts) {
    bool all_dense = true;
    for (const codec::Part& part : parts) {
      data.push_back(part.bytes.data);
      all_dense = all_dense && part.is_dense();
    }
    if (all_dense) return;
    for (const codec::Part& part : parts) codings.push_back(part.coding());
  }
  void GiveTo(TileJob* job) const {
    job->sources = {data.data(), data.size()};
    job->codings = {codings.data(), codings.size()};
  }

  SmallVector<const void*, 8> data;
  SmallVector<kernels::Coding, 8> codings;
};

// Runs an update on some elements only.  The job's base is the sum.
void RunOn(std::span<const codec::Run> runs, const TileJob& whole) {
  const size_t arrays = whole.update->program.states().size();
  const size_t item = ItemSize(whole.dtype);
  const size_t wide = ItemSize(ComputeType(whole.dtype));
  const auto at = [](void* base, size_t bytes) -> void* {
    return static_cast<std::byte*>(base) + bytes;
  };
  for (const codec::Run& run : runs) {
    TileJob job = whole;
    job.count = run.length;
    job.base = static_cast<const std::byte*>(whole.base) + run.begin * wide;
    job.value = at(whole.value, run.begin * item);
    if (whole.master != nullptr) job.master = whole.master + run.begin;
    SmallVector<void*, 4> states(whole.states.begin(), whole.states.end());
    for (size_t i = 0; i < arrays; ++i) states[i] = at(states[i], run.begin * wide);
    job.states = {states.data(), states.size()};
    job.begin = whole.begin + run.begin;
    RunJobs({&job, 1}, kOneThread);
  }
}

bool AllTiled(std::span<const codec::Part> parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [](const codec::Part& part) { return part.is_tiled(); });
}

}  // namespace

void Prefetch(const void* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(static_cast<const std::byte*>(at) + i);
  }
}

void ChunkData::Prefetch() const {
  if (by_rows()) return;           // the rows are known once the body has arrived
  constexpr size_t kBegin = 1024;  // the hardware prefetches the rest
  tkv::Prefetch(dense_.data, std::min(dense_.size, kBegin));
  tkv::Prefetch(dense_.owner.get(), 1);
}

bool Round::Has(Rank rank) const {
  const auto word = static_cast<size_t>(rank) / 64;
  return word < arrived.size() && (arrived[word] >> (rank % 64) & 1) != 0;
}

void Round::Unset(Rank rank) {
  arrived[static_cast<size_t>(rank) / 64] &= ~(uint64_t{1} << (rank % 64));
  --count;
}

void Round::Set(Rank rank) {
  const auto word = static_cast<size_t>(rank) / 64;
  if (word >= arrived.size()) arrived.resize(word + 1);
  arrived[word] |= uint64_t{1} << (rank % 64);
  ++count;
}

bool Chunk::HasArrived(uint64_t round, Rank rank) const {
  return round > version && round - version <= rounds.size() &&
         rounds[round - version - 1].Has(rank);
}

uint64_t Chunk::LastArrived(Rank rank) const {
  uint64_t last = version;
  while (HasArrived(last + 1, rank)) ++last;
  return last;
}

bool ChunkEditor::CanAdopt(const Bytes& body) const {
  return body.size >= adopt_from_bytes_ && body.size > 0 && body.owner.use_count() == 1;
}

Block ChunkEditor::Adopt(Bytes body) const {
  return {const_cast<std::byte*>(body.data), body.size,
          std::const_pointer_cast<void>(std::move(body.owner))};
}

void ChunkEditor::Start(Chunk* chunk, Bytes body) {
  if (CanAdopt(body)) {
    chunk->value.dense_ = Adopt(std::move(body));
    return;
  }
  chunk->value.dense_ = CopyOf({const_cast<std::byte*>(body.data), body.size, nullptr});
}

// Returns true if the rows have states or masters.
static bool KeepsBesideRows(const RowTable& table) {
  return table.state_count() > 0 || table.has_master();
}

void ChunkEditor::SetRule(Chunk* chunk, RulePtr rule) {
  if (rule != nullptr && rule->assigns()) rule = nullptr;
  if (rule == nullptr || !rule->KeepsStateOf(chunk->rule.get())) {
    chunk->states.clear();
    chunk->master = {};
    chunk->updates = 0;
    if (chunk->value.by_rows() && KeepsBesideRows(chunk->value.rows())) {
      chunk->value.rows_->StartStates(0, false);
    }
  }
  chunk->rule = std::move(rule);
}

void ChunkEditor::TryRule(Chunk* chunk, const RulePtr& rule) {
  FormerRule former{rule, chunk->rule,   !rule->KeepsStateOf(chunk->rule.get()), {}, {}, 0,
                    {},   chunk->version};
  if (former.has_state) {
    former.states = chunk->states;
    former.master = chunk->master;
    former.updates = chunk->updates;
    if (chunk->value.by_rows() && KeepsBesideRows(chunk->value.rows())) {
      former.rows = chunk->value.rows();
    }
  }
  SetRule(chunk, rule);
  chunk->former = std::move(former);
}

void ChunkEditor::TakeBack(Chunk* chunk) {
  FormerRule former = *std::exchange(chunk->former, std::nullopt);
  chunk->rule = std::move(former.rule);
  if (!former.has_state) return;
  if (former.rows) TakeBackRows(chunk, &former);
  chunk->states = std::move(former.states);
  chunk->master = std::move(former.master);
  chunk->updates = former.updates;
}

Bytes ChunkEditor::Keep(Bytes body) {
  if (body.size == 0 || body.owner) return body;
  return CopyOf({const_cast<std::byte*>(body.data), body.size, nullptr}).bytes();
}

Block ChunkEditor::CopyOf(const Block& block) {
  Block copy = pool_->Allocate(block.size);
  if (block.size > 0) std::memcpy(copy.data, block.data, block.size);
  return copy;
}

//   throws  kInvalidArgument  as codec::PositionsOf, codec::RunsOf
ChunkEditor::Positions ChunkEditor::PositionsOf(const Chunk& chunk, const codec::Part& part) {
  if (part.encoding == Encoding::kTopK) return {codec::PositionsOf(part, chunk.elements), {}};
  if (part.encoding == Encoding::kRuns) {
    return {{}, codec::RunsOf(part, chunk.dtype, chunk.elements)};
  }
  return {};
}

void ChunkEditor::AddAt(const Chunk& chunk, const codec::Part& part, const Positions& positions,
                        Block* sum) {
  if (part.encoding == Encoding::kRuns) {
    codec::AddRuns(part, positions.runs, chunk.dtype, sum->data);
  } else {
    codec::AddAt(part, positions.positions, sum->as<float>());
  }
}

// Returns the elements that a part changes, or nullopt if the part is not encoded in runs.
ChunkEditor::Runs ChunkEditor::RunsOf(const Chunk& chunk, const codec::Part& part) {
  if (part.encoding != Encoding::kRuns) return std::nullopt;
  return codec::RunsOf(part, chunk.dtype, chunk.elements);
}

// Adds runs to those of a round, as long as all its pushes are encoded in runs.
void ChunkEditor::AddRunsOf(const Runs& runs, Round* round) noexcept {
  round->is_in_runs = round->is_in_runs && runs.has_value();
  if (round->is_in_runs) round->runs.insert(round->runs.end(), runs->begin(), runs->end());
}

// Returns the elements that the round's update changes: under a lazy rule those in its pushes, if
// all are encoded in runs.  A result of nullopt means all elements.
ChunkEditor::Runs ChunkEditor::ChangedBy(const Chunk& chunk, const Round& round,
                                         std::span<const codec::Part> parts) {
  const bool is_lazy =
      chunk.rule != nullptr && chunk.rule->spec().lazy && !chunk.rule->NeedsWholeValues();
  if (!is_lazy || !round.is_in_runs) return std::nullopt;
  std::vector<codec::Run> all = round.runs;
  for (const codec::Part& part : parts) {
    const Runs runs = RunsOf(chunk, part);
    if (!runs) return std::nullopt;
    all.insert(all.end(), runs->begin(), runs->end());
  }
  std::sort(all.begin(), all.end(),
            [](const codec::Run& a, const codec::Run& b) { return a.begin < b.begin; });
  std::vector<codec::Run> changed;
  for (const codec::Run& run : all) {
    if (changed.empty() || run.begin > changed.back().begin + changed.back().length) {
      changed.push_back(run);
      continue;
    }
    codec::Run& last = changed.back();
    last.length = std::max(last.begin + last.length, run.begin + run.length) - last.begin;
  }
  return changed;
}

// Returns a part as the first term of a sum, in the compute type.
//   throws  as PositionsOf
Block ChunkEditor::SumOf(const Chunk& chunk, codec::Part part) {
  const DType compute = ComputeType(chunk.dtype);
  Bytes& body = part.bytes;
  if (part.is_dense() && compute == chunk.dtype) {
    if (CanAdopt(body)) return Adopt(std::move(body));
    return CopyOf({const_cast<std::byte*>(body.data), body.size, nullptr});
  }
  const Positions positions = PositionsOf(chunk, part);
  Block sum = pool_->Allocate(chunk.elements * ItemSize(compute));
  if (part.is_dense()) {
    const void* source[] = {body.data};
    kernels::Sum(chunk.dtype, source, sum.data, chunk.elements, Write::kCached);
  } else if (part.is_tiled()) {
    kernels::Decode(part.coding(), body.data, sum.as<float>(), chunk.elements,
                    kernels::Into::kWrite);
  } else {
    if (sum.size > 0) std::memset(sum.data, 0, sum.size);
    AddAt(chunk, part, positions, &sum);
  }
  return sum;
}

// Adds a part to a sum.
//   throws  as PositionsOf; nothing is added
void ChunkEditor::AddOnto(const Chunk& chunk, const codec::Part& part, Block* sum) {
  const Positions positions = PositionsOf(chunk, part);
  if (!sum->unique()) *sum = CopyOf(*sum);
  if (part.is_dense()) return AddDense(chunk.dtype, part.bytes.data, sum, chunk.elements);
  if (!part.is_tiled()) return AddAt(chunk, part, positions, sum);
  kernels::Decode(part.coding(), part.bytes.data, sum->as<float>(), chunk.elements,
                  kernels::Into::kAdd);
}

void ChunkEditor::CheckSummable(const Chunk& chunk, size_t round_index) const {
  const bool is_first = round_index >= chunk.rounds.size() || chunk.rounds[round_index].count == 0;
  if (!is_first && chunk.elements > 0 && !IsArithmetic(chunk.dtype)) {
    throw Fail(Code::kInvalidArgument, "{} values of several workers cannot be summed",
               Name(chunk.dtype));
  }
}

void ChunkEditor::Contribute(Chunk* chunk, size_t round_index, Rank rank, codec::Part part,
                             Scalars scalars, bool deterministic) {
  CheckSummable(*chunk, round_index);
  if (chunk->rounds.size() <= round_index) chunk->rounds.resize(round_index + 1);
  Round& round = chunk->rounds[round_index];
  Runs runs;
  if (!chunk->value.by_rows() && !deterministic) runs = RunsOf(*chunk, part);
  ReserveForPush(&round, rank, scalars, runs);
  if (chunk->value.by_rows() && !deterministic) {
    const SparseSum added = RowsOf(*chunk, part, SparseSum::Memory::kOwn);
    round.rows = SparseSum::Merge(round.rows, added);
  } else if (deterministic) {
    if (chunk->value.by_rows()) {
      CheckRows(*chunk, part);
    } else if (!part.is_tiled()) {
      PositionsOf(*chunk, part);
    }
    const Bytes& body = part.bytes;
    if (!CanAdopt(body)) {
      part.bytes = CopyOf({const_cast<std::byte*>(body.data), body.size, nullptr}).bytes();
    }
    round.held.emplace_back(rank, std::move(part));
  } else {
    if (round.count == 0) {
      round.sum.dense_ = SumOf(*chunk, std::move(part));
    } else {
      AddOnto(*chunk, part, &round.sum.dense_);
    }
    AddRunsOf(runs, &round);
  }
  MarkArrived(&round, rank, std::move(scalars));
}

Round::Hyperparameters* ChunkEditor::FindHyperparameters(Round* round, const Scalars& scalars) {
  for (Round::Hyperparameters& known : round->hyperparameters) {
    const std::optional<std::vector<double>>& numbers = known.scalars.numbers;
    if (known.scalars.rule != scalars.rule) continue;
    if (numbers.has_value() != scalars.numbers.has_value()) continue;
    if (!numbers || IsSame(*numbers, *scalars.numbers)) return &known;
  }
  return nullptr;
}

// Reserves all memory that MarkArrived and AddRunsOf need, before the round changes.
void ChunkEditor::ReserveForPush(Round* round, Rank rank, const Scalars& scalars,
                                 const Runs& runs) {
  const size_t words = static_cast<size_t>(rank) / 64 + 1;
  if (round->arrived.size() < words) round->arrived.resize(words);
  if (FindHyperparameters(round, scalars) == nullptr) {
    round->hyperparameters.reserve(round->hyperparameters.size() + 1);
  }
  if (!round->is_in_runs || !runs) return;
  const size_t needed = round->runs.size() + runs->size();
  if (needed > round->runs.capacity()) {
    round->runs.reserve(std::max(needed, 2 * round->runs.capacity()));
  }
}

// Notes the arrival of a push.  ReserveForPush has reserved the memory.
void ChunkEditor::MarkArrived(Round* round, Rank rank, Scalars scalars) noexcept {
  round->Set(rank);
  if (Round::Hyperparameters* const known = FindHyperparameters(round, scalars)) {
    known->rank = std::min(known->rank, rank);
    return;
  }
  round->hyperparameters.push_back({rank, std::move(scalars)});
}

//   throws  kInvalidArgument  the number of hyperparameters is not that of the rule's program, or
//           the worker has another program
void ChunkEditor::CheckFits(const Rule& rule, Rank rank, const Scalars& scalars) {
  if (!scalars.numbers) return;
  if (scalars.numbers->size() == rule.param_count()) {
    if (scalars.rule == 0 || scalars.rule == rule.spec().Digest()) return;
    throw Fail(Code::kInvalidArgument,
               "worker {} has another optimizer than worker {}, which set '{}' for all: set the "
               "same one on every worker",
               rank, rule.sender(), rule.program().name());
  }
  throw Fail(Code::kInvalidArgument,
             "worker {} has an optimizer of {} hyperparameters; that of worker {}, which set it "
             "for all, has {}",
             rank, scalars.numbers->size(), rule.sender(), rule.param_count());
}

// Returns the hyperparameters of the lowest rank.  Each other rank has sent the same ones, those of
// the rule, or none.
//   throws  kInvalidArgument  another rank has sent others, or those of another program
const std::vector<double>& ChunkEditor::DecideHyperparameters(const Rule& rule,
                                                              const Round& round) {
  const Round::Hyperparameters* lowest = &round.hyperparameters[0];
  for (const Round::Hyperparameters& sent : round.hyperparameters) {
    if (sent.rank < lowest->rank) lowest = &sent;
    CheckFits(rule, sent.rank, sent.scalars);
  }
  const std::vector<double>& decided =
      lowest->scalars.numbers ? *lowest->scalars.numbers : rule.spec().params;
  for (const Round::Hyperparameters& sent : round.hyperparameters) {
    const std::optional<std::vector<double>>& numbers = sent.scalars.numbers;
    if (!numbers || IsSame(*numbers, rule.spec().params)) continue;
    for (size_t i = 0; i < numbers->size(); ++i) {
      const double other = (*numbers)[i];
      if (std::bit_cast<uint64_t>(other) == std::bit_cast<uint64_t>(decided[i])) continue;
      throw Fail(Code::kInvalidArgument,
                 "{} is {} on worker {} and {} on worker {}; worker {} decides for all: change it "
                 "there, or on every worker before the same push",
                 rule.program().params()[i].name, decided[i], lowest->rank, other, sent.rank,
                 lowest->rank);
    }
  }
  return decided;
}

// Refuses hyperparameters, even an empty list, in a chunk without a rule: their sender expects an
// update.
//   throws  kInvalidArgument  there are hyperparameters
void ChunkEditor::CheckNoHyperparameters(Rank rank, const Scalars& scalars) {
  if (!scalars.numbers) return;
  throw Fail(
      Code::kInvalidArgument,
      "worker {} has set an optimizer, and worker 0, which defines it for all, has set none: "
      "call set_optimizer there, before this push, or here again where worker 0 is dead",
      rank);
}

void ChunkEditor::ContributeLast(Chunk* chunk, Rank rank, codec::Part part, Scalars scalars) {
  MakeUpdateRoom(chunk);
  if (!part.is_tiled() && !chunk->value.by_rows()) {
    Contribute(chunk, 0, rank, std::move(part), std::move(scalars), false);
    return Complete(chunk);
  }
  CheckSummable(*chunk, 0);
  if (chunk->rounds.empty()) chunk->rounds.resize(1);
  Round& round = chunk->rounds.front();
  if (chunk->value.by_rows())
    return ContributeLastRows(chunk, &round, rank, part, std::move(scalars));
  ReserveForPush(&round, rank, scalars, std::nullopt);
  MarkArrived(&round, rank, std::move(scalars));
  FinishRound(chunk, &round, {&part, 1});
}

void ChunkEditor::ContributeLastRows(Chunk* chunk, Round* round, Rank rank, const codec::Part& part,
                                     Scalars scalars) {
  const SparseSum last = RowsOf(*chunk, part, SparseSum::Memory::kBorrow);
  SparseSum rows = SparseSum::Merge(round->rows, last);
  ReserveForPush(round, rank, scalars, std::nullopt);
  auto hyperparameters = round->hyperparameters;
  auto failure = chunk->failure;
  std::swap(round->rows, rows);
  MarkArrived(round, rank, std::move(scalars));
  if (const auto error = FinishRound(chunk, round, {}, WithoutMemory::kStays)) {
    round->rows = std::move(rows);
    round->hyperparameters = std::move(hyperparameters);
    chunk->failure = std::move(failure);
    round->Unset(rank);
    throw Error(*error);
  }
}

// Takes the large blocks that the update of a dense chunk needs.
void ChunkEditor::MakeUpdateRoom(Chunk* chunk) {
  if (chunk->value.by_rows() || chunk->rule == nullptr || chunk->elements == 0) return;
  chunk->rule->CompiledFor(chunk->dtype);
  PrepareState(chunk);
  if (!chunk->value.dense_.unique()) chunk->value.dense_ = CopyOf(chunk->value.dense_);
}

void ChunkEditor::Complete(Chunk* chunk) {
  if (chunk->rounds.empty()) chunk->rounds.resize(1);
  Round& round = chunk->rounds.front();
  std::sort(round.held.begin(), round.held.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<codec::Part> parts;
  parts.reserve(round.held.size());
  for (auto& [rank, part] : round.held) parts.push_back(std::move(part));
  round.held.clear();
  FinishRound(chunk, &round, parts);
}

// Updates the value with a round and removes the round.
//   lacks    kStays: the round stays if there is no memory for the update of rows
//   returns  the reason why the round stays, or nullopt
std::optional<Error> ChunkEditor::FinishRound(Chunk* chunk, Round* round,
                                              std::span<const codec::Part> parts,
                                              WithoutMemory lacks) {
  chunk->failure = std::move(round->failure);
  if (!chunk->failure && !round->is_done && round->undone) {
    chunk->failure = std::move(round->undone->second);
  }
  Block sum = std::exchange(round->sum, {}).dense_;
  SparseSum rows = std::exchange(round->rows, {});
  if (round->count > 0 && chunk->elements > 0) {
    try {
      NamedWhereMemoryEnds("update", [&] {
        if (!chunk->value.by_rows()) return FinishDense(chunk, *round, std::move(sum), parts);
        for (const codec::Part& part : parts) {
          const SparseSum added = RowsOf(*chunk, part, SparseSum::Memory::kBorrow);
          rows = SparseSum::Merge(rows, added);
        }
        FinishRows(chunk, *round, rows);
      });
    } catch (const Error& error) {
      if (lacks == WithoutMemory::kStays && error.code() == Code::kResourceExhausted) return error;
      chunk->failure = error;
    }
  }
  if (chunk->value.by_rows()) chunk->value.rows_->Advance();
  ++chunk->version;
  chunk->rounds.erase(chunk->rounds.begin());
  return std::nullopt;
}

void ChunkEditor::FinishDense(Chunk* chunk, const Round& round, Block sum,
                              std::span<const codec::Part> parts) {
  const Runs changed = ChangedBy(*chunk, round, parts);
  if (!AllTiled(parts)) {  // parts that name positions are added one by one
    for (const codec::Part& part : parts) {
      if (sum) {
        AddOnto(*chunk, part, &sum);
      } else {
        sum = SumOf(*chunk, part);
      }
    }
    parts = {};
  }
  if (chunk->rule != nullptr) {
    Update(chunk, sum, parts, DecideHyperparameters(*chunk->rule, round), round.count, changed);
  } else {
    for (const auto& sent : round.hyperparameters) CheckNoHyperparameters(sent.rank, sent.scalars);
    AssignSum(chunk, std::move(sum), parts);
  }
}

void ChunkEditor::FinishRows(Chunk* chunk, const Round& round, const SparseSum& sum) {
  if (chunk->rule != nullptr) {
    UpdateRows(chunk, sum, DecideHyperparameters(*chunk->rule, round), round.count);
  } else {
    for (const auto& sent : round.hyperparameters) CheckNoHyperparameters(sent.rank, sent.scalars);
    AssignRows(chunk, sum);
  }
}

void ChunkEditor::Apply(Chunk* chunk, Rank rank, codec::Part part, const Scalars& scalars) {
  if (chunk->elements > 0 && chunk->rule != nullptr) CheckFits(*chunk->rule, rank, scalars);
  if (chunk->value.by_rows()) {
    const SparseSum sum = RowsOf(*chunk, part, SparseSum::Memory::kBorrow);
    if (chunk->rule != nullptr) {
      UpdateRows(chunk, sum, scalars.numbers ? *scalars.numbers : chunk->rule->spec().params, 1);
    } else {
      CheckNoHyperparameters(rank, scalars);
      AssignRows(chunk, sum);
    }
  } else if (chunk->elements > 0) {
    Block sum;
    std::span<const codec::Part> parts(&part, 1);
    const Runs changed = ChangedBy(*chunk, {}, parts);
    if (!part.is_tiled()) {
      sum = SumOf(*chunk, part);
      parts = {};
    }
    if (chunk->rule != nullptr) {
      Update(chunk, sum, parts, scalars.numbers ? *scalars.numbers : chunk->rule->spec().params, 1,
             changed);
    } else {
      CheckNoHyperparameters(rank, scalars);
      AssignSum(chunk, std::move(sum), parts);
    }
  }
  if (chunk->value.by_rows()) chunk->value.rows_->Advance();
  ++chunk->version;
}

void ChunkEditor::AssignSum(Chunk* chunk, Block sum, std::span<const codec::Part> parts) {
  const bool same_type = ComputeType(chunk->dtype) == chunk->dtype;
  if (parts.empty() && same_type) {
    chunk->value.dense_ = std::move(sum);
    return;
  }
  if (!sum && parts.size() == 1 && parts[0].is_dense() && CanAdopt(parts[0].bytes)) {
    chunk->value.dense_ = Adopt(parts[0].bytes);
    return;
  }
  const Sources sources(parts);
  TileJob job;
  job.dtype = chunk->dtype;
  job.count = chunk->elements;
  job.base = sum ? sum.data : nullptr;
  sources.GiveTo(&job);
  // The result reuses the sum's block if its type fits, else the value's block if nobody reads it.
  const bool reuse_sum = sum && same_type && sum.unique();
  Block target = reuse_sum                      ? sum
                 : chunk->value.dense_.unique() ? chunk->value.dense_
                                                : pool_->Allocate(chunk->bytes());
  job.value = target.data;
  RunJobs({&job, 1}, kOneThread);
  chunk->value.dense_ = std::move(target);
}

void ChunkEditor::PrepareState(Chunk* chunk) {
  const bool needs_master = chunk->rule->spec().multi_precision && !chunk->master;
  auto made = tkv::PrepareState<Block>(
      chunk->rule->program(), chunk->states.size(), needs_master, chunk->dtype,
      chunk->value.dense_.data, chunk->elements, [&](bool is_array) {
        Block block = pool_->Allocate(
            is_array ? chunk->elements * ItemSize(ComputeType(chunk->dtype)) : sizeof(double));
        void* const data = block.data;
        return std::pair(std::move(block), data);
      });
  if (made.master) chunk->master = std::move(made.master);
  for (Block& state : made.states) chunk->states.push_back(std::move(state));
  if (chunk->master && !chunk->master.unique()) chunk->master = CopyOf(chunk->master);
  for (Block& state : chunk->states) {
    if (!state.unique()) state = CopyOf(state);
  }
}

void ChunkEditor::Update(Chunk* chunk, const Block& sum, std::span<const codec::Part> parts,
                         const std::vector<double>& params, size_t count, const Runs& runs) {
  const Rule& rule = *chunk->rule;
  const CompiledUpdate& update = rule.CompiledFor(chunk->dtype);
  chunk->params = params;
  SmallVector<void*, 4> states;
  for (const Block& state : chunk->states) states.push_back(state.data);
  UpdateScalars bound =
      BindScalars(update, params, {states.data(), states.size()},
                  static_cast<double>(chunk->updates + 1), static_cast<double>(count));
  MakeUpdateRoom(chunk);
  states.clear();
  for (const Block& state : chunk->states) states.push_back(state.data);
  const Sources sources(parts);
  TileJob job;
  job.dtype = chunk->dtype;
  job.count = chunk->elements;
  job.base = sum ? sum.data : nullptr;
  sources.GiveTo(&job);
  job.value = chunk->value.dense_.data;
  job.master = chunk->master ? chunk->master.as<float>() : nullptr;
  job.update = &update;
  job.scalars = &bound;
  job.stream = chunk->stream;
  job.begin = chunk->begin;
  job.states = {states.data(), states.size()};
  if (runs) {
    RunOn(*runs, job);
  } else {
    RunJobs({&job, 1}, kOneThread);
  }
  KeepScalars(bound, job.states);
  ++chunk->updates;
}

}  // namespace tkv
