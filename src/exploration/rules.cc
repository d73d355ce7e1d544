// Checks the rules that hold in every world.

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "exploration/rows.h"
#include "exploration/world.h"

namespace tkv::exploration {
namespace {

bool CountsOf(const std::byte* data, Counts* counts) {
  for (size_t i = 0; i < kPushes; ++i) {
    float value = 0;
    std::memcpy(&value, data + i * sizeof value, sizeof value);
    if (!(value >= 0 && value < 256) || value != static_cast<float>(static_cast<int>(value))) {
      return false;
    }
    (*counts)[i] = static_cast<uint8_t>(value);
  }
  return true;
}

uint64_t PushesOf(int rank) { return uint64_t{0xFFFFFFFF} << (rank * 32); }
uint64_t PushesOf(int rank, int life) { return uint64_t{0xFFFF} << (rank * 32 + life * 16); }

// Pushes with even numbers, as in Brings.
constexpr uint64_t kInBothBuckets = 0x5555'5555'5555'5555;

}  // namespace

const World::Actor* World::ServerOf(uint32_t chunk) {
  step_is_local_ = false;
  return actors_[1 + tkv::ServerOf(kPlacement, IdOf(KeyName()), chunk)].get();
}

std::string World::NameOf(int index) const {
  if (index < 0) return "nobody";
  const ActorPtr& actor = actors_[static_cast<size_t>(index)];
  if (actor == nullptr) return "somebody dead";
  switch (actor->kind) {
    case Kind::kHead:
      return "head";
    case Kind::kServer:
      return Format("server {}", actor->index);
    case Kind::kWorker:
      return actor->user.life == 0 ? Format("worker {}", actor->index)
                                   : Format("worker {}'s later life", actor->index);
    default:
      return "reader";
  }
}

// Finds which pushes a version is made of from the counts of its sum.  Returns an empty text, or
// the broken rule.
std::string World::FindPushesInSum(const Chunk& chunk, const Seen& seen, Counts* counts,
                                   uint64_t* pushes) {
  if (!CountsOf(chunk.value.Read().data, counts)) return "no sum of pushes";
  for (size_t i = 0; i < kPushes; ++i) {
    const int times = (*counts)[i] - (chunk.rule != nullptr ? seen.values.back()[i] : 0);
    if (times < 0 || times > 1) return Format("push {} counts {} times", i, times);
    if (times == 1) *pushes |= uint64_t{1} << i;
  }
  return {};
}

// Does the same for a bucket from the notes of its rows.  The n-th push of an incarnation belongs
// to round n.
std::string World::FindPushesInBucket(uint32_t bucket, const Chunk& chunk, const Seen& seen,
                                      Counts* counts, uint64_t* pushes) const {
  const RowTable& table = chunk.value.rows();
  if (table.version() != chunk.version) {
    return Format("its rows are of version {}", table.version());
  }
  const auto versions = std::count_if(seen.pushes.begin(), seen.pushes.end(),
                                      [](uint64_t of_version) { return of_version != 0; });
  std::string wrong =
      FindPushesInRows(*scope_, table, bucket, static_cast<uint64_t>(versions), counts, pushes);
  if (!wrong.empty()) return wrong;
  for (size_t push = 0; push < kPushes; ++push) {
    const bool is_in = (*pushes >> push & 1) != 0;
    if (is_in && push % kOrdinals + 1 != chunk.version) {
      return Format("push {} is of another round", push);
    }
  }
  return {};
}

// Checks a completed version: it has one push of each member, and no push of another version.
void World::Completed(const ShardCore& shard, const ChunkId& id, const Chunk& chunk) {
  if (id.key != IdOf(KeyName())) return;
  Actor* const server = edited_[1 + tkv::ServerOf(kPlacement, id.key, id.chunk)];
  Seen& seen = server->chunks[id.chunk];
  if (seen.values.empty()) {
    seen.values.emplace_back();
    seen.pushes.push_back(0);
    seen.adds.push_back(false);
  }
  const std::string where = Format("chunk {} version {}", id.chunk, chunk.version);
  if (chunk.version != seen.values.size()) {
    return Violate(Format("{} follows version {}", where, seen.values.size() - 1));
  }
  if (chunk.failure) return Violate(Format("{}: {}", where, chunk.failure->what()));
  Counts counts{};
  uint64_t pushes = 0;
  const bool adds = chunk.rule != nullptr;
  const std::string wrong = scope_->by_rows
                                ? FindPushesInBucket(id.chunk, chunk, seen, &counts, &pushes)
                                : FindPushesInSum(chunk, seen, &counts, &pushes);
  if (!wrong.empty()) return Violate(Format("{}: {}", where, wrong));
  // For a sparse key, every other push sends bucket 1 no row; the bucket still has a new version.
  const bool shows = !scope_->by_rows || Brings(chunk.version - 1, id.chunk);
  for (const uint64_t earlier : seen.pushes) {
    if ((earlier & pushes) != 0) return Violate(where + ": a push of an earlier version counts");
  }
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    const bool is_due = control_from_[rank] != 0 && chunk.version >= control_from_[rank];
    if (is_due && control_done_[rank] != 0 && !adds) {
      return Violate(where + ": a CONTROL that is in force does not count");
    }
  }
  const bool may_add = std::any_of(control_from_.begin(), control_from_.end(), [&](uint64_t from) {
    return from != 0 && chunk.version >= from;
  });
  if (adds && !may_add) return Violate(where + ": a CONTROL counts too early");
  const StoredKey* const key = shard.FindKey(id.key);
  bool somebody_abstains = false;
  for (int rank = 0; rank < kWorkers; ++rank) {
    const uint64_t own = pushes & PushesOf(rank);
    if ((own & (own - 1)) != 0) {
      return Violate(Format("{}: two pushes of worker {}", where, rank));
    }
    const bool abstains = key->AbstainOf(rank) >= chunk.version;
    somebody_abstains = somebody_abstains || abstains;
    if (own == 0 && shows && shard.epoch().IsMember(rank) && !abstains) {
      return Violate(Format("{}: complete without worker {}", where, rank));
    }
  }
  if (pushes == 0 && shows && !somebody_abstains) return Violate(where + ": made of nothing");
  // Both chunks of a version have the same pushes, except those that a dead worker has not sent
  // completely: its later life repeats them, and under `continue` they are missing.
  const Actor* const other = ServerOf(1 - id.chunk);
  const auto seen_there = other->chunks.find(1 - id.chunk);
  if (seen_there != other->chunks.end() && seen_there->second.values.size() > chunk.version) {
    const auto at = static_cast<size_t>(chunk.version);
    if (seen_there->second.adds[at] != adds) {
      Violate(where + ": another rule than in the other chunk");
    }
    uint64_t torn = seen_there->second.pushes[at] ^ pushes;
    const bool shows_there = !scope_->by_rows || Brings(chunk.version - 1, 1 - id.chunk);
    for (int rank = 0; rank < kWorkers; ++rank) {
      if (deaths_[static_cast<size_t>(rank)] == 0) continue;
      torn &= ~PushesOf(rank, 0);
      if (scope_->policy == Epoch::Policy::kContinue) continue;
      torn &= ~PushesOf(rank);
      const uint64_t there = seen_there->second.pushes[at] & PushesOf(rank);
      const bool is_whole = ((pushes & PushesOf(rank)) != 0) == (there != 0);
      if (shows && shows_there && !is_whole) {
        Violate(Format("{}: worker {} is in one chunk only", where, rank));
      }
    }
    if (scope_->by_rows) torn &= kInBothBuckets;
    if (torn != 0) Violate(where + ": other pushes than in the other chunk");
  }
  seen.values.push_back(counts);
  seen.pushes.push_back(pushes);
  seen.adds.push_back(adds);
}

// Checks that an accepted push is in its round, or waits for it, in every chunk.  A chunk that has
// the same round's push of an earlier life counts that one instead.
void World::CheckAccepted(const Actor& actor, size_t push, uint64_t round) {
  for (uint32_t c = 0; c < kChunks; ++c) {
    const Actor* const server = ServerOf(c);
    const auto& shard = static_cast<const ServerNode&>(*server->node).shard();
    const Chunk* const chunk = shard.FindChunk({IdOf(KeyName()), c});
    const std::string what = Format("worker {}: push {} is accepted for round {} and chunk {}",
                                    actor.index, push, round, c);
    if (chunk == nullptr) {
      Violate(what + " is not there");
    } else if (chunk->version < round) {
      if (!chunk->HasArrived(round, actor.index)) Violate(what + " has not got it");
    } else if (scope_->by_rows && !Brings(push, c)) {
      continue;  // the push sends this bucket no row
    } else {
      const uint64_t pushes = server->chunks.at(c).pushes[static_cast<size_t>(round)];
      const bool is_repeated = actor.user.life > 0 && (pushes & PushesOf(actor.index, 0)) != 0;
      if ((pushes >> push & 1) == 0 && !is_repeated) Violate(what + " does not count it");
    }
  }
}

// Checks a pulled value: a worker gets the complete round of its last push, a reader one complete
// version.  A later life that has to repeat a push first gets some version of each chunk.
void World::CheckPull(const Actor& actor, uint64_t version) {
  const auto& client = static_cast<const ClientNode&>(*actor.node).client();
  const std::string who =
      actor.kind == Kind::kWorker ? Format("worker {}", actor.index) : std::string("reader");
  const bool is_exact = scope_->staleness == 0 && !client.MustRepeat(KeyName());
  if (actor.kind == Kind::kWorker && is_exact && version != client.RoundOf(KeyName())) {
    return Violate(
        Format("{}: pulled version {} after its push {}", who, version, client.RoundOf(KeyName())));
  }
  for (uint32_t c = 0; c < kChunks; ++c) {
    Counts counts{};
    const float* const at = actor.scratch.as<float>() + size_t{c} * kChunkElements;
    const bool is_good = scope_->by_rows
                             ? CountsOfRows(actor.scratch.as<float>(), c, &counts)
                             : CountsOf(reinterpret_cast<const std::byte*>(at), &counts);
    if (!is_good) {
      return Violate(Format("{}: pulled something that was never there", who));
    }
    const Actor* const server = ServerOf(c);
    const auto seen = server->chunks.find(c);
    std::vector<Counts> known{Counts{}};
    if (seen != server->chunks.end()) known = seen->second.values;
    const bool fits = is_exact ? version < known.size() && known[version] == counts
                               : std::find(known.begin(), known.end(), counts) != known.end();
    if (!fits) {
      return Violate(
          Format("{}: pulled something else than version {} of chunk {}", who, version, c));
    }
  }
}

void World::CheckBarrier(const Actor& actor) {
  step_is_local_ = false;
  for (const ActorPtr& other : actors_) {
    if (other == nullptr || other->kind != Kind::kWorker || deaths_[0] + deaths_[1] > 0) continue;
    if (other->user.barriers < actor.user.barriers) {
      Violate(Format("worker {} has passed barrier {} before worker {} came", actor.index,
                     actor.user.barriers, other->index));
    }
  }
}

void World::CheckFailure(const Actor& actor, const Error& error) {
  step_is_local_ = false;
  const std::string what =
      Format("{} {}: {}: {}", actor.kind == Kind::kWorker ? "worker" : "reader", actor.index,
             tkv::Name(error.code()), error.what());
  const auto rank = static_cast<size_t>(actor.index);
  if (actor.kind == Kind::kWorker && actor.user.life == 0 && deaths_[rank] != 0) {
    if (error.code() != Code::kAborted && error.code() != Code::kUnavailable) Violate(what);
    return;  // it was declared dead
  }
  // Only worker 0 creates keys.
  if (actor.user.verb == 'I' && deaths_[0] != 0 && error.code() == Code::kUnavailable) return;
  for (size_t gone = 0; gone < kWorkers; ++gone) {
    const bool names_dead =
        deaths_[gone] != 0 &&
        std::string(error.what()).find(Format("worker {}", gone)) != std::string::npos;
    if (names_dead && scope_->policy == Epoch::Policy::kFail &&
        error.code() == Code::kUnavailable) {
      return;
    }
  }
  Violate(what);
}

std::string World::CheckEnd() const {
  for (size_t i = 0; i < actors_.size(); ++i) {
    const ActorPtr& actor = actors_[i];
    if (actor == nullptr || (actor->kind != Kind::kWorker && actor->kind != Kind::kObserver)) {
      continue;
    }
    if (actor->user.over) continue;
    return Format("nothing will ever happen again, and {} waits in {} (step {} of '{}')",
                  NameOf(static_cast<int>(i)), actor->user.verb == 0 ? '-' : actor->user.verb,
                  actor->user.next, actor->index == 0 ? scope_->program : scope_->second_program);
  }
  return {};
}

}  // namespace tkv::exploration
