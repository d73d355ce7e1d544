#include "server/key_catalog.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "base/memory_error.h"
#include "codec/codec.h"
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

bool KeyCatalog::Admits(const Session& session, const Message& message) const {
  if (!describes_.MayMake(session.id, message) ||
      message.body.size > core_.options.chunk_bytes_max) {
    return false;
  }
  try {
    const KeyMeta meta = DecodeKeyMeta(message.extra);
    return IsOfThisServer(meta, message) &&
           !codec::Judge(meta, message.chunk, codec::InitEncoding(meta), 0, message.body.size);
  } catch (const Error&) {
    return false;
  }
}

void KeyCatalog::OnInit(Session* session, Message& message, Effects* effects) {
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
  RulePtr own;
  Chunk fresh;
  try {
    own = RuleOfNewKey(session->id, message, meta);
    if (const KeyMeta* const kept = MetaThatStays(meta, message)) {
      Message reply = Reply(message, Type::kExists);
      reply.extra = Encode(*kept);
      return replies_.Answer(session, message, std::move(reply), effects);
    }
    fresh = MakeChunk(meta, own, &message);
  } catch (const Error& error) {
    return replies_.AnswerError(session, message, error.code(), error.what(), effects);
  }
  Enter(message, std::move(meta), own, std::move(fresh), effects);
  replies_.Answer(session, message, Reply(message, Type::kOk), effects);
  if (message.chunk != 0) return;
  core_.grants.Drop(message.key);
  describes_.AnswerAllOf(message.key, effects);
}

RulePtr KeyCatalog::RuleOfNewKey(const SessionId& maker, const Message& init,
                                 const KeyMeta& meta) const {
  const uint32_t store = StoreOf(meta.name);
  if (!describes_.MayMake(maker, init))
    throw Fail(Code::kFailedPrecondition, "rank 0 creates keys");
  if (core_.dropped.Has(store)) throw Fail(Code::kFailedPrecondition, "{}", StoreIsOver(store));
  if (const auto error =
          codec::Judge(meta, init.chunk, codec::InitEncoding(meta), 0, init.body.size)) {
    throw Error(*error);
  }
  RulePtr own = OwnRuleOf(meta, maker);
  for (const RulePtr& rule : core_.controls) {
    if (rule->store() != store || own != nullptr) continue;
    if (const auto error = WhyNotWhole(meta, *rule)) throw Error(*error);
  }
  if (init.body.size > 0 && !init.body) {
    throw Fail(Code::kResourceExhausted, "a chunk of {} bytes, at most {} are allowed",
               init.body.size, core_.options.chunk_bytes_max);
  }
  return own;
}

const KeyMeta* KeyCatalog::MetaThatStays(const KeyMeta& meta, const Message& init) const {
  const StoredKey* const key = core_.FindKey(init.key);
  if (key != nullptr && key->meta.name != meta.name) {
    throw Fail(Code::kAlreadyExists, "the id is taken by {}", ShownKey(key->meta.name));
  }
  const auto is_replaceable = [&](const Chunk& old) {
    return (init.flags & kOverwrite) != 0 && old.author <= init.number && old.version == 0 &&
           old.rounds.empty();
  };
  const Chunk* const chunk = core_.FindChunk(init.chunk_id());
  const bool is_another = key != nullptr && key->meta != meta;
  const bool stays = (chunk != nullptr && !is_replaceable(*chunk)) ||
                     (is_another && !std::ranges::all_of(key->chunks, [&](uint32_t c) {
                        return is_replaceable(core_.chunks.at({init.key, c}));
                      }));
  return stays ? &key->meta : nullptr;
}

Chunk KeyCatalog::MakeChunk(const KeyMeta& meta, const RulePtr& own, Message* init) const {
  Chunk chunk;
  chunk.elements = meta.elements_of(init->chunk);
  chunk.dtype = meta.dtype;
  chunk.author = init->number;
  chunk.stream = StreamOf(KeyOf(meta.name));
  chunk.rule = own;
  if (meta.by_rows()) {
    chunk.elements = static_cast<size_t>(meta.elements());
    chunk.bucket = codec::BucketOfKey(meta, init->chunk);
    NamedWhereMemoryEnds("the server", [&] { core_.editor.StartRows(&chunk, meta, init->body); });
    return chunk;
  }
  if (init->chunk > 0) chunk.begin = uint64_t{init->chunk} * meta.chunk_elements;
  core_.editor.Start(&chunk, std::move(init->body));
  return chunk;
}

void KeyCatalog::Enter(const Message& init, KeyMeta meta, const RulePtr& own, Chunk fresh,
                       Effects* effects) {
  auto key = core_.keys.find(init.key);
  const auto chunk = core_.chunks.find(init.chunk_id());
  const bool is_another = key != core_.keys.end() && key->second.meta != meta;
  std::vector<uint64_t> former_births;
  if (is_another) former_births = BirthsReplacedBy(meta, key->second);
  // If the key keeps its shape, pulls that wait for a round of this chunk continue to wait.
  if (chunk != core_.chunks.end() && (!is_another || !former_births.empty())) {
    fresh.parked = std::exchange(chunk->second.parked, {});
  }
  if (is_another) {
    Erase(init.key, "the key has been made anew", effects);
    key = core_.keys.end();
  }
  if (key == core_.keys.end()) {
    key = core_.keys.emplace(init.key, StoredKey{}).first;
    key->second.meta = std::move(meta);
    key->second.store = StoreOf(key->second.meta.name);
    key->second.own = own;
    key->second.former_births = std::move(former_births);
    // A key created after a CONTROL of its store has this rule from its first round on.
    for (const RulePtr& rule : core_.controls) {
      if (own == nullptr && rule->store() == key->second.store) {
        key->second.pending.push_back({++core_.control_count, 0, rule});
      }
    }
  }
  auto& chunks = key->second.chunks;
  if (std::find(chunks.begin(), chunks.end(), init.chunk) == chunks.end()) {
    chunks.push_back(init.chunk);
  }
  core_.chunks[init.chunk_id()] = std::move(fresh);
}

void KeyCatalog::OnDelete(Session* session, const Message& message, Effects* effects) {
  // Under `continue` the lowest living rank deletes keys.  This server may not know yet which rank
  // that is, and accepts any.
  if (session->id.rank != 0 && core_.epoch().policy != Epoch::Policy::kContinue) {
    return replies_.AnswerError(session, message, Code::kFailedPrecondition, "rank 0 deletes keys",
                                effects);
  }
  const auto key = core_.keys.find(message.key);
  const bool is_meant = key != core_.keys.end() && key->second.IsMeantBy(message);
  if (is_meant) Erase(message.key, "the key has been deleted", effects);
  replies_.Answer(session, message, Reply(message, Type::kOk), effects);
}

void KeyCatalog::Erase(const KeyId& id, const char* why, Effects* effects) {
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

bool KeyCatalog::IsOfThisServer(const KeyMeta& meta, const Message& init) const {
  return IdOf(meta.name) == init.key && init.chunk < meta.chunk_count() &&
         (meta.by_rows() || init.body.size == meta.bytes_of(init.chunk)) &&
         core_.epoch().placement.servers > 0 &&
         ServerOf(core_.epoch().placement, init.key, init.chunk) == core_.options.index;
}

}  // namespace tkv
