// The existence of keys and stores: INIT, DESCRIBE, DELETE, CLOSE.

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/format.h"
#include "base/memory_error.h"
#include "codec/codec.h"
#include "server/shard.h"
#include "update/random.h"

namespace tkv {
namespace {

constexpr size_t kFormerBirthsMax = 16;

// Returns the births that stay valid when an INIT replaces a key that has had no round yet.
std::vector<uint64_t> BirthsReplacedBy(KeyMeta fresh, const StoredKey& old) {
  std::vector<uint64_t> births;
  fresh.birth = old.meta.birth;
  if (fresh != old.meta) return births;  // workers with the old shape cannot use the new key
  births = old.former_births;
  if (births.size() >= kFormerBirthsMax) births.erase(births.begin());
  births.push_back(old.meta.birth);
  return births;
}

// Returns the key's own optimizer as a rule, or null if the key uses the store's.
//   throws  kInvalidArgument, kFailedPrecondition  the optimizer does not fit the key
RulePtr OwnRuleOf(const KeyMeta& meta, const SessionId& maker) {
  if (!meta.own) return nullptr;
  auto rule = std::make_shared<const Rule>(maker.rank, maker.incarnation, uint64_t{0},
                                           StoreOf(meta.name), *meta.own);
  if (rule->assigns()) throw Fail(Code::kInvalidArgument, "an optimizer without a program");
  if (const auto error = WhyNotWhole(meta, *rule)) throw Error(*error);
  rule->CompiledFor(meta.dtype);
  return rule;
}

}  // namespace

// Returns true if an INIT is for a chunk of this key and server, with the right size.
bool Shard::IsOfThisServer(const KeyMeta& meta, const Message& init) const {
  return IdOf(meta.name) == init.key && init.chunk < meta.chunk_count() &&
         (meta.by_rows() || init.body.size == meta.bytes_of(init.chunk)) &&
         core_.epoch().placement.servers > 0 &&
         ServerOf(core_.epoch().placement, init.key, init.chunk) == core_.options.index;
}

void Shard::OnInit(Session* session, Message& message, Effects* effects) {
  KeyMeta meta;
  try {
    meta = DecodeKeyMeta(message.extra);
  } catch (const Error& error) {
    return replies_.Violation(session, message, error.what(), effects);
  }
  if (!IsOfThisServer(meta, message)) {
    return replies_.Violation(session, message, "this chunk does not belong to this key and server",
                              effects);
  }
  if (!MayMake(session->id, message)) {
    return replies_.AnswerError(session, message, Code::kFailedPrecondition, "rank 0 creates keys",
                                effects);
  }
  if (core_.dropped.Has(StoreOf(meta.name))) {
    return replies_.AnswerError(session, message, Code::kFailedPrecondition,
                                StoreIsOver(StoreOf(meta.name)), effects);
  }
  if (const auto error =
          codec::Judge(meta, message.chunk, codec::InitEncoding(meta), 0, message.body.size)) {
    return replies_.AnswerError(session, message, error->code(), error->what(), effects);
  }
  RulePtr own;
  try {
    own = OwnRuleOf(meta, session->id);
  } catch (const Error& error) {
    return replies_.AnswerError(session, message, error.code(), error.what(), effects);
  }
  for (const RulePtr& rule : core_.controls) {
    if (rule->store() != StoreOf(meta.name) || own != nullptr) continue;
    if (const auto error = WhyNotWhole(meta, *rule)) {
      return replies_.AnswerError(session, message, error->code(), error->what(), effects);
    }
  }
  if (message.body.size > 0 && !message.body) {
    return replies_.AnswerError(session, message, Code::kResourceExhausted,
                                Format("a chunk of {} bytes, at most {} are allowed",
                                       message.body.size, core_.options.chunk_bytes_max),
                                effects);
  }
  auto key = core_.keys.find(message.key);
  auto chunk = core_.chunks.find(message.chunk_id());
  const bool overwrite = (message.flags & kOverwrite) != 0;
  if (key != core_.keys.end() && key->second.meta.name != meta.name) {
    return replies_.AnswerError(session, message, Code::kAlreadyExists,
                                Format("the id is taken by {}", ShownKey(key->second.meta.name)),
                                effects);
  }
  const auto replaceable = [&](const Chunk& old) {
    return overwrite && old.author <= message.number && old.version == 0 && old.rounds.empty();
  };
  const bool is_another = key != core_.keys.end() && key->second.meta != meta;
  const bool stays =
      (chunk != core_.chunks.end() && !replaceable(chunk->second)) ||
      (is_another &&
       !std::all_of(key->second.chunks.begin(), key->second.chunks.end(),
                    [&](uint32_t c) { return replaceable(core_.chunks.at({message.key, c})); }));
  if (stays) {
    Message reply = Reply(message, Type::kExists);
    reply.extra = Encode(key->second.meta);
    return replies_.Answer(session, message, std::move(reply), effects);
  }
  Chunk fresh;
  fresh.elements = meta.elements_of(message.chunk);
  fresh.dtype = meta.dtype;
  fresh.author = message.number;
  fresh.stream = StreamOf(KeyOf(meta.name));
  fresh.rule = own;
  if (meta.by_rows()) {
    fresh.elements = static_cast<size_t>(meta.elements());
    fresh.bucket = codec::BucketOfKey(meta, message.chunk);
  } else if (message.chunk > 0) {
    fresh.begin = uint64_t{message.chunk} * meta.chunk_elements;
  }
  try {
    if (meta.by_rows()) {
      NamedWhereMemoryEnds("the server",
                           [&] { core_.editor.StartRows(&fresh, meta, message.body); });
    } else {
      core_.editor.Start(&fresh, std::move(message.body));
    }
  } catch (const Error& error) {
    return replies_.AnswerError(session, message, error.code(), error.what(), effects);
  }
  std::vector<uint64_t> former_births;
  if (is_another) former_births = BirthsReplacedBy(meta, key->second);
  // If the key keeps its shape, pulls that wait for a round of this chunk continue to wait.
  if (chunk != core_.chunks.end() && (!is_another || !former_births.empty())) {
    fresh.parked = std::exchange(chunk->second.parked, {});
  }
  if (is_another) {
    EraseKey(message.key, "the key has been made anew", effects);
    key = core_.keys.end();
  }
  if (key == core_.keys.end()) {
    key = core_.keys.emplace(message.key, StoredKey{}).first;
    key->second.meta = std::move(meta);
    key->second.store = StoreOf(key->second.meta.name);
    key->second.own = own;
    key->second.former_births = std::move(former_births);
    // A key created after a CONTROL of its store has this rule from its first round on.
    for (const RulePtr& rule : core_.controls) {
      if (own == nullptr && rule->store() == StoreOf(key->second.meta.name)) {
        key->second.pending.push_back({++core_.control_count, 0, rule});
      }
    }
  }
  auto& chunks = key->second.chunks;
  if (std::find(chunks.begin(), chunks.end(), message.chunk) == chunks.end()) {
    chunks.push_back(message.chunk);
  }
  core_.chunks[message.chunk_id()] = std::move(fresh);
  replies_.Answer(session, message, Reply(message, Type::kOk), effects);
  if (message.chunk != 0) return;
  core_.grants.erase(message.key);
  AnswerDescribesOf(message.key, effects);
}

// Returns true if the sender of an INIT may create the key: rank 0, or a worker with a grant.  A
// grant is checked only for chunk 0, because the server of chunk 0 has issued the grant, and the
// key exists once its chunk 0 does.
bool Shard::MayMake(const SessionId& sender, const Message& init) const {
  if (init.number == 0 || init.chunk != 0) return sender.rank == 0 || init.number != 0;
  const auto grant = core_.grants.find(init.key);
  return grant != core_.grants.end() && grant->second.maker == sender &&
         grant->second.number == init.number;
}

// Returns the rank that creates the keys of a store: rank 0, or under `continue` the lowest rank
// that is alive or awaited and has the store open.  Returns kNoRank if there is no such rank.
Rank Shard::MakerOf(uint32_t store) const {
  const bool has_heirs = core_.epoch().policy == Epoch::Policy::kContinue;
  for (Rank rank = 0; static_cast<size_t>(rank) < core_.epoch().workers.size(); ++rank) {
    const bool is_out =
        core_.HasClosed(rank, store) || core_.epoch().IsGone(rank) || !core_.epoch().IsMember(rank);
    if (!is_out) return rank;
    if (!has_heirs) break;
  }
  return kNoRank;
}

// Lets a worker create a missing key, unless another worker is creating it.  Returns the number of
// the grant.  If several grants exist for a key, the largest number wins.
std::optional<uint64_t> Shard::Grant(const SessionId& asker, const Message& describe) {
  if (asker.rank == kNoRank || MakerOf(describe.chunk) != asker.rank) return std::nullopt;
  KeyGrant& grant = core_.grants[describe.key];
  if (grant.maker != asker) {
    const bool is_taken = grant.number != 0 && !core_.members.IsOver(Role::kWorker, grant.maker) &&
                          !core_.HasClosed(grant.maker.rank, describe.chunk);
    if (is_taken) return std::nullopt;
    grant = {asker, ++core_.grant_count, describe.chunk};
  }
  return grant.number;
}

void Shard::OnDescribe(Session* session, Message& message, Effects* effects) {
  core_.ForgetDescribe(session, message.seq);  // it may be a repetition
  const bool asks_to_make = (message.flags & kMayMake) != 0 && !core_.keys.contains(message.key);
  if (asks_to_make && core_.grants.size() >= core_.options.parked_max &&
      !core_.grants.contains(message.key)) {
    return replies_.AnswerError(
        session, message, Code::kResourceExhausted,
        Format("{} keys are being created at the server", core_.grants.size()), effects);
  }
  if (AnswerDescribe(*session, message, effects)) return;
  if (session->parked >= core_.options.parked_max) {
    return replies_.AnswerTooMany(session, message, effects);
  }
  ++session->parked;
  message.body = {};
  message.extra = {};  // nothing reads it, and its sender chooses its size
  core_.describes.Add(session->id, std::move(message));
}

// Returns the rule of a chunk with the hyperparameters of its last update.  No program means
// assignment.
UpdateSpec Shard::RunningRule(const Chunk& chunk) {
  if (chunk.rule == nullptr) return {};
  UpdateSpec spec = chunk.rule->spec();
  if (chunk.params.size() == spec.params.size()) spec.params = chunk.params;
  return spec;
}

// Answers a DESCRIBE.  Returns false if it has to wait until another worker creates the key.
bool Shard::AnswerDescribe(const Session& session, const Message& request, Effects* effects) {
  const bool may_make = (request.flags & kMayMake) != 0;
  const uint32_t store = may_make ? request.chunk : kNoStore;
  Message reply;
  if (core_.chunks.contains({request.key, 0})) {
    reply = Reply(request, Type::kMeta);
    KeyMeta meta = core_.keys.at(request.key).meta;
    if ((request.flags & kWithRule) != 0) meta.own = RunningRule(core_.chunks.at({request.key, 0}));
    reply.extra = Encode(meta);
  } else if (may_make && core_.dropped.Has(store)) {
    reply = ErrorReply(request.seq, Code::kFailedPrecondition, StoreIsOver(store));
  } else if (const auto grant = may_make ? Grant(session.id, request) : std::nullopt) {
    reply = Reply(request, Type::kOk, *grant);
  } else if (!may_make && (request.flags & kNoWait) != 0) {
    reply = ErrorReply(request.seq, Code::kNotFound, "no such key");
  } else if (!core_.epoch().workers.empty() && MakerOf(store) == kNoRank &&
             (core_.HasClosed(0, store) || !core_.members.WaitsForLife(session.id, 0))) {
    reply = ErrorReply(request.seq, Code::kUnavailable,
                       Format("worker 0, which creates keys, {}", WhyNoMaker(store)));
  } else {
    return false;
  }
  if (session.link != kNoLink) effects->Send(session.link, std::move(reply));
  return true;
}

// Answers the DESCRIBEs that wait for one key.
void Shard::AnswerDescribesOf(const KeyId& key, Effects* effects) {
  AnswerDescribes(core_.describes.Of(key), effects);
}

// Answers the DESCRIBEs that need not wait any more after a change of members or stores.
void Shard::RecheckDescribes(Effects* effects) { AnswerDescribes(core_.describes.All(), effects); }

void Shard::AnswerDescribes(const std::vector<WaitingDescribes::Waiter>& waiters,
                            Effects* effects) {
  for (const WaitingDescribes::Waiter& waiter : waiters) {
    Session& session = core_.sessions.At(waiter.first);
    if (AnswerDescribe(session, core_.describes.At(waiter), effects)) {
      core_.ForgetDescribe(&session, waiter.second);
    }
  }
}

// Says why rank 0 creates no key of the store any more.
std::string Shard::WhyNoMaker(uint32_t store) const {
  if (core_.HasClosed(0, store)) return Format("has closed store {}", store);
  return core_.epoch().workers[0].state == Epoch::State::kLeft ? "has left" : "is dead";
}

void Shard::OnDelete(Session* session, const Message& message, Effects* effects) {
  // Under `continue` the lowest living rank deletes keys.  This server may not know yet which rank
  // that is, and accepts any.
  if (session->id.rank != 0 && core_.epoch().policy != Epoch::Policy::kContinue) {
    return replies_.AnswerError(session, message, Code::kFailedPrecondition, "rank 0 deletes keys",
                                effects);
  }
  const auto key = core_.keys.find(message.key);
  const bool is_meant = key != core_.keys.end() && key->second.IsMeantBy(message);
  if (is_meant) EraseKey(message.key, "the key has been deleted", effects);
  replies_.Answer(session, message, Reply(message, Type::kOk), effects);
}

// Removes a key and its chunks.  Pulls that wait for them get NotFound.
void Shard::EraseKey(const KeyId& id, const char* why, Effects* effects) {
  const auto key = core_.keys.find(id);
  if (key == core_.keys.end()) return;
  for (const uint32_t c : key->second.chunks) {
    const auto chunk = core_.chunks.find({id, c});
    for (const ParkedPull& pull : chunk->second.parked) {
      Session& waiting = core_.sessions.At(pull.session);
      waiting.Unpark(pull);
      if (waiting.link == kNoLink) continue;
      effects->Send(waiting.link, ErrorReply(pull.seq, Code::kNotFound, why));
    }
    for (const Round& round : chunk->second.rounds) {
      for (const auto& [rank, part] : round.held) Drop(&core_.held_bytes, part.bytes.size);
    }
    core_.chunks.erase(chunk);
  }
  core_.keys.erase(key);
}

// ---- stores that are closed ---------------------------------------------------------------------

void Shard::OnClose(Session* session, const Message& message, Effects* effects) {
  const uint32_t store = message.chunk;
  if (!session->closed.Add(store)) {
    return replies_.AnswerError(
        session, message, Code::kResourceExhausted,
        Format("more than {} stores are closed while an earlier one is open", ClosedStores::kMax),
        effects);
  }
  replies_.Answer(session, message, Reply(message, Type::kOk), effects);
  core_.half_closed.insert(store);
  if (IsClosedByAll(store)) return DropStore(store, effects);
  RecheckStore(store, effects);
}

// Returns true if every worker that may still use the store has closed it.  Returns false if no
// such worker is left: the job ends then, and observers may read the last values.
bool Shard::IsClosedByAll(uint32_t store) const {
  bool by_somebody = false;
  for (Rank rank = 0; static_cast<size_t>(rank) < core_.epoch().workers.size(); ++rank) {
    if (core_.epoch().IsLast(rank)) continue;
    if (!core_.HasClosed(rank, store)) return false;
    by_somebody = true;
  }
  return by_somebody;
}

// Completes the rounds and answers the operations that need not wait any more, because a worker has
// closed the store.
void Shard::RecheckStore(uint32_t store, Effects* effects) {
  RecheckDescribes(effects);
  for (auto& [id, chunk] : core_.chunks) {
    StoredKey& key = core_.keys.at(id.key);
    if (key.store != store) continue;
    rounds_.Complete(id, &key, &chunk, effects);
    pulls_.AnswerParked(id, key, &chunk, effects);
  }
}

void Shard::DropStore(uint32_t store, Effects* effects) {
  std::vector<KeyId> ids = {IdOf(InternalKey(store, "barrier"))};
  for (const auto& [id, key] : core_.keys) {
    if (!key.is_barrier && StoreOf(key.meta.name) == store) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const KeyId& id : ids) EraseKey(id, "the store is closed", effects);
  core_.half_closed.erase(store);
  core_.dropped.Add(store);
  RecheckDescribes(effects);
  std::erase_if(core_.controls, [&](const RulePtr& rule) { return rule->store() == store; });
  std::erase_if(core_.grants, [&](const auto& grant) { return grant.second.store == store; });
  core_.cuts.DropStore(store);
}

// Updates the half-closed stores after a change of members.  A worker that has ended for good holds
// no store open, and the CLOSEs of an ended incarnation do not count.
void Shard::RecheckClosedStores(Effects* effects) {
  const std::set<uint32_t> stores = core_.half_closed;
  for (const uint32_t store : stores) {
    if (IsClosedByAll(store)) {
      DropStore(store, effects);
    } else if (std::ranges::none_of(core_.sessions.all(), [&](const auto& session) {
                 return session.second.closed.Has(store);
               })) {
      core_.half_closed.erase(store);
    }
  }
}

}  // namespace tkv
