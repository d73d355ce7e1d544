#include "server/chunk.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/kernels.h"
#include "update/state.h"

namespace tkv {
namespace {

using kernels::Write;

constexpr int kOneThread = 1;  // a shard is one thread

bool IsSame(const std::vector<double>& a, const std::vector<double>& b) {
  const auto is_same = [](double x, double y) {  // also of NaN
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same);
}

// sum += body, where the sum may be wider than the body.
void AddOnto(DType dtype, const std::byte* body, Block* sum, size_t count) {
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

}  // namespace

void Prefetch(const void* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(static_cast<const std::byte*>(at) + i);
  }
}

void ChunkData::Prefetch() const {
  constexpr size_t kBegin = 1024;  // the hardware sees the rest coming
  tkv::Prefetch(dense_.data, std::min(dense_.size, kBegin));
  tkv::Prefetch(dense_.owner.get(), 1);
}

bool Round::Has(Rank rank) const {
  const auto word = static_cast<size_t>(rank) / 64;
  return word < arrived.size() && (arrived[word] >> (rank % 64) & 1) != 0;
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

bool ChunkWorker::CanAdopt(const Bytes& body) const {
  return body.size >= adopt_from_bytes_ && body.size > 0 && body.owner.use_count() == 1;
}

Block ChunkWorker::Adopt(Bytes body) const {
  return {const_cast<std::byte*>(body.data), body.size,
          std::const_pointer_cast<void>(std::move(body.owner))};
}

void ChunkWorker::Start(Chunk* chunk, Bytes body) {
  if (CanAdopt(body)) {
    chunk->value.dense_ = Adopt(std::move(body));
    return;
  }
  chunk->value.dense_ = CopyOf({const_cast<std::byte*>(body.data), body.size, nullptr});
}

void ChunkWorker::SetRule(Chunk* chunk, RulePtr rule) {
  if (rule != nullptr && rule->assigns()) rule = nullptr;
  if (rule == nullptr || !rule->KeepsStateOf(chunk->rule.get())) {
    chunk->states.clear();
    chunk->master = {};
    chunk->updates = 0;
  }
  chunk->rule = std::move(rule);
}

void ChunkWorker::TryRule(Chunk* chunk, const RulePtr& rule) {
  FormerRule former{rule, chunk->rule, !rule->KeepsStateOf(chunk->rule.get()), {}, {}, 0};
  if (former.has_state) {
    former.states = chunk->states;
    former.master = chunk->master;
    former.updates = chunk->updates;
  }
  SetRule(chunk, rule);
  chunk->former = std::move(former);
}

void ChunkWorker::TakeBack(Chunk* chunk) {
  FormerRule former = *std::exchange(chunk->former, std::nullopt);
  chunk->rule = std::move(former.rule);
  if (!former.has_state) return;
  chunk->states = std::move(former.states);
  chunk->master = std::move(former.master);
  chunk->updates = former.updates;
}

Bytes ChunkWorker::Keep(Bytes body) {
  if (body.size == 0 || body.owner) return body;
  return CopyOf({const_cast<std::byte*>(body.data), body.size, nullptr}).bytes();
}

Block ChunkWorker::CopyOf(const Block& block) {
  Block copy = pool_->Allocate(block.size);
  if (block.size > 0) std::memcpy(copy.data, block.data, block.size);
  return copy;
}

// The first push of a round as its accumulator.
Block ChunkWorker::Accumulator(const Chunk& chunk, Bytes body) {
  const DType compute = ComputeType(chunk.dtype);
  if (compute == chunk.dtype) {
    if (CanAdopt(body)) return Adopt(std::move(body));
    return CopyOf({const_cast<std::byte*>(body.data), body.size, nullptr});
  }
  Block sum = pool_->Allocate(chunk.elements * ItemSize(compute));
  const void* source[] = {body.data};
  kernels::Sum(chunk.dtype, source, sum.data, chunk.elements, Write::kCached);
  return sum;
}

void ChunkWorker::CheckSummable(const Chunk& chunk, size_t round_index) const {
  const bool is_first = round_index >= chunk.rounds.size() || chunk.rounds[round_index].count == 0;
  if (!is_first && chunk.elements > 0 && !IsArithmetic(chunk.dtype)) {
    throw Fail(Code::kInvalidArgument, "{} values of several workers cannot be summed",
               Name(chunk.dtype));
  }
}

void ChunkWorker::Contribute(Chunk* chunk, size_t round_index, Rank rank, Bytes body,
                             std::vector<double> scalars, bool deterministic) {
  CheckSummable(*chunk, round_index);
  if (chunk->rounds.size() <= round_index) chunk->rounds.resize(round_index + 1);
  Round& round = chunk->rounds[round_index];
  if (deterministic) {
    Bytes kept = CanAdopt(body)
                     ? std::move(body)
                     : CopyOf({const_cast<std::byte*>(body.data), body.size, nullptr}).bytes();
    round.held.emplace_back(rank, std::move(kept));
  } else if (round.count == 0) {
    round.sum.dense_ = Accumulator(*chunk, std::move(body));
  } else {
    if (!round.sum.dense_.unique()) round.sum.dense_ = CopyOf(round.sum.dense_);
    AddOnto(chunk->dtype, body.data, &round.sum.dense_, chunk->elements);
  }
  Note(&round, rank, std::move(scalars));
}

void ChunkWorker::Note(Round* round, Rank rank, std::vector<double> scalars) {
  round->Set(rank);
  for (Round::Hyperparameters& known : round->hyperparameters) {
    if (!IsSame(known.values, scalars)) continue;
    known.rank = std::min(known.rank, rank);
    return;
  }
  round->hyperparameters.push_back({rank, std::move(scalars)});
}

// Those of the lowest rank.  Another one may have the same, those that the rule came with, or none.
//   throws  kInvalidArgument  another one has sent others, or those of another program
const std::vector<double>& ChunkWorker::DecideHyperparameters(const Rule& rule,
                                                              const Round& round) {
  const Round::Hyperparameters* lowest = &round.hyperparameters[0];
  for (const Round::Hyperparameters& sent : round.hyperparameters) {
    if (sent.rank < lowest->rank) lowest = &sent;
    if (sent.values.empty() || sent.values.size() == rule.param_count()) continue;
    throw Fail(Code::kInvalidArgument,
               "worker {} has an optimizer of {} hyperparameters; that of worker {}, which set it "
               "for all, has {}",
               sent.rank, sent.values.size(), rule.sender(), rule.param_count());
  }
  const std::vector<double>& decided = lowest->values.empty() ? rule.spec().params : lowest->values;
  for (const Round::Hyperparameters& sent : round.hyperparameters) {
    if (IsSame(sent.values, rule.spec().params)) continue;
    for (size_t i = 0; i < sent.values.size(); ++i) {
      const double other = sent.values[i];
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

// A worker that sends hyperparameters means to update by them.
//   throws  kInvalidArgument  and there is no rule
void ChunkWorker::CheckNobodyUpdates(Rank rank, const std::vector<double>& scalars) {
  if (scalars.empty()) return;
  throw Fail(
      Code::kInvalidArgument,
      "worker {} has set an optimizer, and worker 0, which defines it for all, has set none: "
      "call set_optimizer there, before this push",
      rank);
}

void ChunkWorker::ContributeLast(Chunk* chunk, Rank rank, Bytes body, std::vector<double> scalars) {
  CheckSummable(*chunk, 0);
  if (chunk->rounds.empty()) chunk->rounds.resize(1);
  Round& round = chunk->rounds.front();
  Note(&round, rank, std::move(scalars));
  Finish(chunk, &round, {&body, 1});
}

void ChunkWorker::Complete(Chunk* chunk) {
  if (chunk->rounds.empty()) chunk->rounds.resize(1);
  Round& round = chunk->rounds.front();
  std::sort(round.held.begin(), round.held.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Bytes> bodies;
  bodies.reserve(round.held.size());
  for (auto& [rank, body] : round.held) bodies.push_back(std::move(body));
  round.held.clear();
  Finish(chunk, &round, bodies);
}

void ChunkWorker::Finish(Chunk* chunk, Round* round, std::span<const Bytes> bodies) {
  chunk->failure.reset();
  Block sum = std::exchange(round->sum, {}).dense_;
  if (round->count > 0 && chunk->elements > 0) {
    try {
      if (chunk->rule != nullptr) {
        SmallVector<const void*, 8> sources;
        for (const Bytes& body : bodies) sources.push_back(body.data);
        Update(chunk, sum, {sources.data(), sources.size()},
               DecideHyperparameters(*chunk->rule, *round), round->count);
      } else {
        for (const auto& sent : round->hyperparameters) CheckNobodyUpdates(sent.rank, sent.values);
        Assign(chunk, std::move(sum), bodies);
      }
    } catch (const Error& error) {
      chunk->failure = error;
    }
  }
  ++chunk->version;
  chunk->rounds.erase(chunk->rounds.begin());
}

void ChunkWorker::Apply(Chunk* chunk, Rank rank, Bytes body, const std::vector<double>& scalars) {
  if (chunk->elements > 0) {
    if (chunk->rule != nullptr) {
      const void* source[] = {body.data};
      Update(chunk, {}, source, scalars, 1);
    } else {
      CheckNobodyUpdates(rank, scalars);
      Assign(chunk, {}, {&body, 1});
    }
  }
  ++chunk->version;
}

void ChunkWorker::Assign(Chunk* chunk, Block sum, std::span<const Bytes> bodies) {
  const bool same_type = ComputeType(chunk->dtype) == chunk->dtype;
  if (bodies.empty() && same_type) {
    chunk->value.dense_ = std::move(sum);
    return;
  }
  if (!sum && bodies.size() == 1 && CanAdopt(bodies[0])) {
    chunk->value.dense_ = Adopt(bodies[0]);
    return;
  }
  SmallVector<const void*, 8> sources;
  for (const Bytes& body : bodies) sources.push_back(body.data);
  TileJob job;
  job.dtype = chunk->dtype;
  job.count = chunk->elements;
  job.base = sum ? sum.data : nullptr;
  job.sources = {sources.data(), sources.size()};
  // The sum's own block becomes the value where it fits; else the value's if nobody reads it.
  const bool reuse_sum = sum && same_type && sum.unique();
  Block target = reuse_sum                      ? sum
                 : chunk->value.dense_.unique() ? chunk->value.dense_
                                                : pool_->Allocate(chunk->bytes());
  job.value = target.data;
  RunJobs({&job, 1}, kOneThread);
  chunk->value.dense_ = std::move(target);
}

void ChunkWorker::PrepareState(Chunk* chunk) {
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

void ChunkWorker::Update(Chunk* chunk, const Block& sum, std::span<const void* const> sources,
                         const std::vector<double>& scalars, size_t count) {
  const Rule& rule = *chunk->rule;
  const CompiledUpdate& update = rule.CompiledFor(chunk->dtype);
  const std::vector<double>& params =
      scalars.size() == rule.param_count() ? scalars : rule.spec().params;
  SmallVector<void*, 4> states;
  for (const Block& state : chunk->states) states.push_back(state.data);
  UpdateScalars bound =
      BindScalars(update, params, {states.data(), states.size()},
                  static_cast<double>(chunk->updates + 1), static_cast<double>(count));
  PrepareState(chunk);
  states.clear();
  for (const Block& state : chunk->states) states.push_back(state.data);
  if (!chunk->value.dense_.unique()) chunk->value.dense_ = CopyOf(chunk->value.dense_);
  TileJob job;
  job.dtype = chunk->dtype;
  job.count = chunk->elements;
  job.base = sum ? sum.data : nullptr;
  job.sources = sources;
  job.value = chunk->value.dense_.data;
  job.master = chunk->master ? chunk->master.as<float>() : nullptr;
  job.update = &update;
  job.scalars = &bound;
  job.stream = chunk->stream;
  job.begin = chunk->begin;
  job.states = {states.data(), states.size()};
  RunJobs({&job, 1}, kOneThread);
  KeepScalars(bound, job.states);
  ++chunk->updates;
}

}  // namespace tkv
