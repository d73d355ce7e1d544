#include "simulation/model.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "base/mix.h"

namespace tkv::simulation {

void Model::Violate(std::string text) {
  if (violation_.empty()) violation_ = std::move(text);
}

std::string Model::Describe(size_t key, uint32_t chunk, uint64_t version) const {
  return Format("key {} chunk {} version {}", ShownKey(scenario_.keys[key].name), chunk, version);
}

void Model::Created(size_t key) {
  if (keys_.contains(key)) return;
  const SimKey& sim = scenario_.keys[key];
  KeyModel& model = keys_[key];
  model.chunks.resize(sim.meta.chunk_count());
  for (ChunkModel& chunk : model.chunks) {
    chunk.versions[0].lanes = InitialValue(scenario_.seed, sim);
    if (sim.meta.by_rows()) chunk.versions[0].rows = RowTruth(InitialRows(scenario_.seed, sim));
  }
}

void Model::Deleted(size_t key) {
  const auto found = keys_.find(key);
  if (found != keys_.end()) deleted_.emplace(key, std::move(found->second));
  keys_.erase(key);
  for (Control& control : controls_) {
    // Applies to the recreated key from its first round.
    if (control.from_rounds[key] != kNever) control.from_rounds[key] = 0;
  }
}

void Model::Pushed(size_t key, Push push, uint64_t round) {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return;
  found->second.pushed[round].insert(push);
  if (found->second.all.insert(push).second) CheckOrder(key, push, round);
}

// Checks that a CONTROL counts for its sender's later pushes and for none of the earlier ones.  The
// round reported by the sender guarantees this unless an earlier push has failed.
void Model::CheckOrder(size_t key, Push push, uint64_t round) {
  const SimKey& sim = scenario_.keys[key];
  const KeyModel& model = keys_.at(key);
  const bool has_failed = std::any_of(model.failed.begin(), model.failed.end(),
                                      [&](const Push& old) { return old.life == push.life; });
  if (sim.meta.mode == KeyMeta::Mode::kAsync || has_failed) return;
  if (IsRepeat(model, push, round)) return;  // belongs to a round before the CONTROL
  const Control* given = nullptr;            // the last CONTROL before the push
  const Control* counts = nullptr;
  for (const Control& control : controls_) {
    const uint64_t from = control.from_rounds[key];
    if (control.life != push.life || from == kNever) continue;
    if (from <= round) counts = &control;
    if (control.is_repeat) continue;
    if (push.ordinal > control.last) given = &control;
    if (push.ordinal > control.last && from > round && from != kUnlisted) {
      Violate(Format("{}: a push after CONTROL {} of worker {}, which counts later",
                     Describe(key, 0, round), control.generation, push.life.rank));
    } else if (push.ordinal <= control.last && from <= round) {
      Violate(Format("{}: a push before CONTROL {} of worker {}, which counts already",
                     Describe(key, 0, round), control.generation, push.life.rank));
    }
  }
  if (given == nullptr || given->from_rounds[key] != kUnlisted) return;
  if (counts == nullptr || counts->accumulate != given->accumulate) {
    Violate(Format("{}: a push after CONTROL {} of worker {}, which has not been said again",
                   Describe(key, 0, round), given->generation, push.life.rank));
  }
}

// Returns true if a push of this round by an earlier life of the worker has left, or one that failed:
// some chunks may have that push.
bool Model::IsRepeat(const KeyModel& model, Push push, uint64_t round) {
  const auto pushed = model.pushed.find(round);
  return pushed != model.pushed.end() &&
         std::ranges::any_of(pushed->second, [&](const Push& other) {
           const bool is_earlier = other.life < push.life || model.failed.contains(other);
           return other.life.rank == push.life.rank && other < push && is_earlier;
         });
}

bool Model::HasLeft(size_t key, Push push) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && found->second.all.contains(push);
}

std::optional<Push> Model::PushOf(size_t key, Life life, uint64_t round) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return std::nullopt;
  const auto pushed = found->second.pushed.find(round);
  if (pushed == found->second.pushed.end()) return std::nullopt;
  std::optional<Push> newest;
  for (const Push& push : pushed->second) {
    if (push.life == life) newest = push;
  }
  return newest;
}

void Model::Failed(size_t key, Push push) {
  if (const auto found = keys_.find(key); found != keys_.end()) found->second.failed.insert(push);
}

void Model::Refused(size_t key, Push push) {
  if (const auto found = keys_.find(key); found != keys_.end()) found->second.refused.insert(push);
}

void Model::Controlled(Control control) {
  for (const Control& other : controls_) {  // one CONTROL has a message for each server
    if (other.life == control.life && other.generation == control.generation) return;
  }
  controls_.push_back(std::move(control));
}

void Model::Withdrawn(Life life, uint64_t generation) {
  std::erase_if(controls_, [&](const Control& control) {
    const bool is_it = control.life == life && control.generation == generation;
    if (is_it) withdrawn_.push_back(control);
    return is_it;
  });
}

void Model::ControlFailed(Life life) {
  std::erase_if(withdrawn_, [&](const Control& control) { return control.life == life; });
}

// Returns true if an asynchronous push may be applied by this rule: the rule of the last committed
// CONTROL, or of a CONTROL in progress.  A server may also still apply a withdrawn CONTROL.
bool Model::MayBeRule(const Epoch& seen, const Epoch& head, size_t key, bool accumulate) const {
  const bool hides =
      std::any_of(scenario_.faults.begin(), scenario_.faults.end(), [](const Fault& fault) {
        return fault.kind == Fault::Kind::kIsolate || fault.kind == Fault::Kind::kPause;
      });
  if (hides) return true;  // a server may be unreachable for longer than an operation lasts
  bool committed = false;
  bool may_be = false;
  const auto is_open = [&](const Control& control) {
    const Epoch::Seat& seat = seen.workers[static_cast<size_t>(control.life.rank)];
    const bool is_over = seat.incarnation > control.life.incarnation || seat.IsOver();
    return control.from_rounds[key] != kNever && control.accumulate == accumulate && !is_over;
  };
  for (const Control& control : controls_) {
    if (control.from_rounds[key] == kNever) continue;
    if (control.generation <= head.CommittedBy(control.life.rank, control.life.incarnation)) {
      committed = control.accumulate;
      may_be = false;
    } else {
      may_be = may_be || is_open(control);
    }
  }
  return may_be || committed == accumulate ||
         std::any_of(withdrawn_.begin(), withdrawn_.end(), is_open);
}

// Notes that a key is created; earlier CONTROLs count from its first round.
void Model::Made(size_t key) {
  for (Control& control : controls_) {
    if (control.from_rounds[key] == kUnlisted) control.from_rounds[key] = 0;
  }
}

// Returns the rule of a round: true if the last CONTROL that is committed and due accumulates.
bool Model::RuleAt(size_t key, uint64_t round, const Epoch& head) const {
  bool accumulate = false;
  for (const Control& control : controls_) {
    const uint64_t committed = head.CommittedBy(control.life.rank, control.life.incarnation);
    if (control.generation > committed || control.from_rounds[key] > round) continue;
    accumulate = control.accumulate;
  }
  return accumulate;
}

// Returns the version that follows, without the names of its pushes.
//   has_pushes  false: all workers abstain from the round, so that the value stays
Model::Version Model::Result(const SimKey& key, uint32_t index, const Version& before,
                             const Lanes& sum, RowSet touched, bool accumulate,
                             bool has_pushes) const {
  Version result{before.lanes, {}, before.rows};
  if (key.meta.by_rows()) {
    if (key.meta.policy.replaces_all && has_pushes && !accumulate) {
      result.rows.Clear(key, index, &result.lanes);
    }
    result.rows.Advance(key, index, touched, sum, accumulate, &result.lanes);
    return result;
  }
  for (size_t i = 0; i < result.lanes.size(); ++i) {
    if ((touched >> i & 1) == 0) continue;
    result.lanes[i] = Updated(key, before.lanes[i], sum[i], accumulate);
  }
  return result;
}

namespace {

bool HasLane(const SimKey& key, const std::byte* element, int64_t lane) {
  return Load(key.meta.dtype, element) == Wrap(key.meta.dtype, lane);
}

// Returns true if these bytes, as a pull receives them from a chunk, have the values of the lanes.
bool Matches(const SimKey& key, uint32_t chunk, const Bytes& bytes, const Lanes& lanes,
             RowSet rows = kAllRows) {
  const size_t item = ItemSize(key.meta.dtype);
  if (key.meta.by_rows()) {
    const size_t row = key.meta.row_bytes();
    const std::byte* at = bytes.data;
    for (const uint64_t id : RowsOf(key, chunk, rows)) {
      for (const std::byte* const end = at + row; at < end; at += item) {
        if (!HasLane(key, at, lanes[id])) return false;
      }
    }
    return true;
  }
  const size_t count = bytes.size / item;
  const size_t first = std::min(count, kLanes);
  for (size_t i = 0; i < first; ++i) {
    if (!HasLane(key, bytes.data + i * item, lanes[i])) return false;
  }
  // The other elements repeat the first eight.
  return count <= kLanes ||
         std::memcmp(bytes.data, bytes.data + kLanes * item, (count - kLanes) * item) == 0;
}

// Returns the bytes that a pull of the whole chunk would receive.
Bytes ValueOf(const SimKey& key, uint32_t index, const Chunk& chunk) {
  if (!key.meta.by_rows()) return chunk.value.Read();
  std::vector<uint64_t> mixes;
  for (const uint64_t id : RowsOf(key, index, kAllRows)) mixes.push_back(Mix(id));
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(mixes.size() * chunk.value.rows().row_bytes());
  chunk.value.rows().Read(mixes, bytes->data());
  return {bytes->data(), bytes->size(), bytes};
}

}  // namespace

// Returns an empty text if the chunk has this version's contents, or the difference.
std::string Model::Differs(const SimKey& key, uint32_t index, const Chunk& chunk,
                           const Bytes& value, const Version& version) const {
  if (!Matches(key, index, value, version.lanes)) return "the value is another one";
  return key.meta.by_rows() ? version.rows.Compare(key, index, RowsIn(chunk.value.rows()))
                            : std::string();
}

void Model::Completed(const ShardCore& shard, const Epoch& head, const ChunkId& id,
                      const Chunk& chunk) {
  for (const auto& [key, model] : keys_) {
    const SimKey& sim = scenario_.keys[key];
    if (IdOf(sim.name) != id.key) continue;
    if (chunk.failure) {
      return Violate(Format("{}: the update failed: {}", Describe(key, id.chunk, chunk.version),
                            chunk.failure->what()));
    }
    if (sim.meta.mode == KeyMeta::Mode::kAsync) {
      return CompletedAsync(shard, head, key, id.chunk, chunk);
    }
    return CompletedSync(shard, head, key, id.chunk, chunk);
  }
}

void Model::CompletedSync(const ShardCore& shard, const Epoch& head, size_t key, uint32_t index,
                          const Chunk& chunk) {
  const SimKey& sim = scenario_.keys[key];
  KeyModel& model = keys_.at(key);
  ChunkModel& state = model.chunks[index];
  const uint64_t round = chunk.version;
  const std::string where = Describe(key, index, round);
  if (round != state.version + 1) {
    return Violate(Format("{}: follows version {}", where, state.version));
  }
  // Finds the pushes that must be in the version, and those that may be.
  const Epoch& epoch = shard.epoch();
  const StoredKey* const shard_key = shard.FindKey(IdOf(sim.name));
  std::vector<Push> must;
  std::vector<Push> may;
  bool somebody_abstains = false;
  const auto abstains = [&](Rank rank) {
    return shard_key != nullptr && shard_key->AbstainOf(rank) >= round;
  };
  // If a push of a worker failed before the worker left, the worker has one round fewer than the
  // others.  They continue without it after it has closed the store.
  const auto needs = [&](Rank rank) {
    const bool has_closed = epoch.policy == Epoch::Policy::kContinue && shard_key != nullptr &&
                            shard.HasClosed(rank, shard_key->store);
    return epoch.IsMember(rank) && !abstains(rank) && !has_closed;
  };
  for (Rank rank = 0; rank < scenario_.workers; ++rank) {
    somebody_abstains = somebody_abstains || abstains(rank);
    std::vector<Push> pushes;
    for (const Push& push : model.pushed[round]) {
      if (push.life.rank == rank) pushes.push_back(push);
    }
    if (needs(rank)) {
      if (pushes.empty()) {
        return Violate(Format("{}: complete without worker {}, which has not pushed round {}",
                              where, rank, round));
      }
      if (pushes.size() == 1) {
        must.push_back(pushes[0]);
        continue;
      }
    }
    may.insert(may.end(), pushes.begin(), pushes.end());
  }
  // Finds a subset of the optional pushes that explains the value, with at most one push of each
  // rank.
  const bool accumulate = RuleAt(key, round, head) && sim.accumulates;
  if (const auto rule = model.rule_of_round.find(round);
      rule != model.rule_of_round.end() && rule->second != accumulate) {
    return Violate(Format("{}: another rule than other chunks of the round", where));
  }
  model.rule_of_round[round] = accumulate;
  const Version& before = state.versions[round - 1];
  const Bytes value = ValueOf(sim, index, chunk);
  std::string why = "nobody can be in it";
  const size_t subsets = size_t{1} << std::min<size_t>(may.size(), 16);
  for (size_t subset = subsets; subset-- > 0;) {
    std::map<Rank, Push> from;
    Lanes sum{};
    RowSet touched = 0;
    bool possible = true;
    const auto add = [&](const Push& push) {
      possible = possible && from.emplace(push.life.rank, push).second;
      const Lanes lanes =
          Contribution(scenario_.seed, sim, push.life.rank, push.life.incarnation, push.ordinal);
      const RowSet rows =
          Touched(scenario_.seed, sim, push.life.rank, push.life.incarnation, push.ordinal);
      touched |= rows;
      for (size_t i = 0; i < sum.size(); ++i) {
        if ((rows >> i & 1) == 0) continue;
        sum[i] =
            static_cast<int64_t>(static_cast<uint64_t>(sum[i]) + static_cast<uint64_t>(lanes[i]));
      }
    };
    for (const Push& push : must) add(push);
    for (size_t i = 0; i < may.size(); ++i) {
      if ((subset >> i & 1) != 0) add(may[i]);
    }
    if (!possible) continue;
    // A rank with several incarnations needs one of them in the version.
    for (Rank rank = 0; rank < scenario_.workers; ++rank) {
      if (needs(rank) && !from.contains(rank)) possible = false;
    }
    if (!possible || (from.empty() && !somebody_abstains)) continue;
    Version version = Result(sim, index, before, sum, touched, accumulate, !from.empty());
    why = Differs(sim, index, chunk, value, version);
    if (!why.empty()) continue;
    version.from = std::move(from);
    state.version = round;
    state.versions[round] = std::move(version);
    if (epoch.policy != Epoch::Policy::kContinue) CheckWhole(sim, model, index, round, where);
    return;
  }
  Violate(Format(
      "{}: it is not made of the pushes of this round ({} must be in it, {} may), rule {}: {}",
      where, must.size(), may.size(), accumulate ? "add" : "assign", why));
}

// Checks that each worker is in all chunks of a round or in none.  A worker repeats a push that only
// some chunks have got, so the pushes may differ.
void Model::CheckWhole(const SimKey& key, const KeyModel& model, uint32_t index, uint64_t round,
                       const std::string& where) {
  const std::map<Rank, Push>& here = model.chunks[index].versions.at(round).from;
  for (uint32_t c = 0; c < key.meta.chunk_count(); ++c) {
    const auto there = model.chunks[c].versions.find(round);
    if (there == model.chunks[c].versions.end()) continue;
    for (Rank rank = 0; rank < scenario_.workers; ++rank) {
      if (here.contains(rank) == there->second.from.contains(rank)) continue;
      const bool has_failed = std::ranges::any_of(model.failed, [&](const Push& push) {
        return push.life.rank == rank && !model.refused.contains(push);
      });
      if (has_failed) continue;
      return Violate(Format("{}: worker {} is in a part of the round only", where, rank));
    }
  }
}

void Model::CompletedAsync(const ShardCore& shard, const Epoch& head, size_t key, uint32_t index,
                           const Chunk& chunk) {
  const SimKey& sim = scenario_.keys[key];
  KeyModel& model = keys_.at(key);
  ChunkModel& state = model.chunks[index];
  const std::string where = Describe(key, index, chunk.version);
  if (chunk.version != state.version + 1) {
    return Violate(Format("{}: follows version {}", where, state.version));
  }
  const Version& before = state.versions[state.version];
  const Bytes value = ValueOf(sim, index, chunk);
  for (const Push& push : model.all) {
    if (state.applied[push.life] >= push.ordinal) continue;
    const Lanes lanes =
        Contribution(scenario_.seed, sim, push.life.rank, push.life.incarnation, push.ordinal);
    for (const bool accumulate : {false, true}) {
      if (accumulate && !sim.accumulates) continue;
      if (!MayBeRule(shard.epoch(), head, key, accumulate)) continue;
      const RowSet touched =
          Touched(scenario_.seed, sim, push.life.rank, push.life.incarnation, push.ordinal);
      Version result = Result(sim, index, before, lanes, touched, accumulate, true);
      if (!Differs(sim, index, chunk, value, result).empty()) continue;
      for (const Push& earlier : model.all) {
        if (earlier.life == push.life && earlier.ordinal > state.applied[push.life] &&
            earlier.ordinal < push.ordinal && !model.failed.contains(earlier)) {
          return Violate(Format("{}: push {} of worker {} came before push {}", where, push.ordinal,
                                push.life.rank, earlier.ordinal));
        }
      }
      state.applied[push.life] = push.ordinal;
      state.applied_in[push] = chunk.version;
      state.version = chunk.version;
      state.versions[chunk.version] = std::move(result);
      return;
    }
  }
  Violate(Format("{}: the value is that of no push that was not applied before", where));
}

void Model::Accepted(size_t key, Push push, uint64_t round, const Placement& placement,
                     const std::vector<const Shard*>& shards) {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return;
  const SimKey& sim = scenario_.keys[key];
  for (uint32_t c = 0; c < found->second.chunks.size(); ++c) {
    const Shard* const shard = shards[ServerOf(placement, IdOf(sim.name), c)];
    const Chunk* const chunk = shard == nullptr ? nullptr : shard->FindChunk({IdOf(sim.name), c});
    if (chunk == nullptr) continue;  // the server is dead
    ChunkModel& state = found->second.chunks[c];
    if (sim.meta.mode == KeyMeta::Mode::kAsync) {
      if (!state.applied_in.contains(push)) {
        return Violate(Format("{}: push {} of worker {} is accepted and not applied",
                              Describe(key, c, chunk->version), round, push.life.rank));
      }
      continue;
    }
    if (chunk->version < round) {
      if (!chunk->HasArrived(round, push.life.rank)) {
        return Violate(Format("{}: push {} of worker {} is accepted and not there",
                              Describe(key, c, chunk->version), round, push.life.rank));
      }
      continue;
    }
    const auto& from = state.versions[round].from;
    const auto in = from.find(push.life.rank);
    const bool is_in =
        in != from.end() &&
        (in->second == push || (IsRepeat(found->second, push, round) && in->second < push));
    if (!is_in) {
      return Violate(Format("{}: push {} of worker {} is accepted and is not in the sum",
                            Describe(key, c, round), round, push.life.rank));
    }
  }
}

void Model::Pulled(size_t key, Life life, bool exact, uint64_t round, uint64_t last,
                   const Bytes& bytes, RowSet rows) {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return;
  const SimKey& sim = scenario_.keys[key];
  size_t at = 0;
  for (uint32_t c = 0; c < found->second.chunks.size(); ++c) {
    const ChunkModel& state = found->second.chunks[c];
    const Bytes part{bytes.data + at, PulledBytes(sim, c, rows), nullptr};
    at += part.size;
    if (part.size == 0) continue;  // the pull requested no rows of this bucket
    if (exact) {
      const auto version = state.versions.find(round);
      if (version == state.versions.end() || !Matches(sim, c, part, version->second.lanes, rows)) {
        return Violate(Format("{}: worker {} pulled another value after its push {}",
                              Describe(key, c, round), life.rank, round));
      }
      continue;
    }
    uint64_t from = 0;  // the oldest version that has the worker's own pushes
    if (last > 0) {
      const auto own = state.applied_in.find({life, last});
      if (own != state.applied_in.end()) from = own->second;
    }
    bool seen = false;
    for (auto version = state.versions.lower_bound(from); version != state.versions.end();
         ++version) {
      seen = seen || Matches(sim, c, part, version->second.lanes, rows);
    }
    if (!seen) {
      return Violate(Format("{}: worker {} pulled a value that no version since {} had",
                            Describe(key, c, state.version), life.rank, from));
    }
  }
}

bool Model::WasWhole(const SimKey& key, const KeyModel& model, const Bytes& bytes) const {
  for (const auto& [number, first] : model.chunks[0].versions) {
    size_t at = 0;
    bool all = true;
    for (uint32_t c = 0; c < model.chunks.size() && all; ++c) {
      const Bytes part{bytes.data + at, PulledBytes(key, c, kAllRows), nullptr};
      at += part.size;
      const auto version = model.chunks[c].versions.find(number);
      all =
          version != model.chunks[c].versions.end() && Matches(key, c, part, version->second.lanes);
    }
    if (all) return true;
  }
  return false;
}

void Model::Observed(size_t key, const Bytes& bytes) {
  const SimKey& sim = scenario_.keys[key];
  const auto found = keys_.find(key);
  if (found != keys_.end() && WasWhole(sim, found->second, bytes)) return;
  const auto [begin, end] = deleted_.equal_range(key);
  for (auto old = begin; old != end; ++old) {
    if (WasWhole(sim, old->second, bytes)) return;
  }
  Violate(Format("key {}: an observer saw a value that was never there as a whole",
                 ShownKey(sim.name)));
}

}  // namespace tkv::simulation
