#include "server/controls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace tkv {
namespace {

constexpr size_t kItemsMax = size_t{1} << 24;  // of one CONTROL

}  // namespace

bool Controls::Admits(const Message& message) {
  return message.body.size <= kItemsMax * sizeof(ControlRounds::Item);
}

void Controls::OnControl(Session* session, const Message& message, Effects* effects) {
  const size_t item_bytes = sizeof(ControlRounds::Item);
  if (message.body.size % item_bytes != 0 || (message.body.size > 0 && !message.body)) {
    return replies_.Violation(session, message, Format("a body of {} bytes", message.body.size),
                              effects);
  }
  RulePtr rule;
  try {
    rule = std::make_shared<Rule>(session->id.rank, session->id.incarnation, message.number,
                                  message.chunk, DecodeUpdateSpec(message.extra));
  } catch (const Error& error) {
    return replies_.AnswerError(session, message, error.code(), error.what(), effects);
  }
  for (const auto& [id, key] : core_.keys) {
    if (key.is_barrier || key.own || StoreOf(key.meta.name) != rule->store()) continue;
    if (key.pending.size() >= core_.options.rules_max) {
      return replies_.AnswerError(session, message, Code::kResourceExhausted,
                                  Format("{} changes of the updater of {} wait for their round",
                                         key.pending.size(), ShownKey(key.meta.name)),
                                  effects);
    }
    if (const auto error = WhyNotWhole(key.meta, *rule)) {
      return replies_.AnswerError(session, message, error->code(), error->what(), effects);
    }
  }
  boost::unordered_map<KeyId, uint64_t> from_rounds;
  for (size_t i = 0; i < message.body.size / item_bytes; ++i) {
    ControlRounds::Item item;
    std::memcpy(&item, message.body.data + i * item_bytes, item_bytes);
    from_rounds[item.key] = item.from_round;
  }
  // A sender commits its last CONTROL before it sends the next one.  The store's CONTROLs before
  // that last one no longer matter to keys created later.
  const auto last =
      std::find_if(core_.controls.rbegin(), core_.controls.rend(), [&](const RulePtr& old) {
        return old->SentBy(rule->sender(), rule->incarnation()) && old->store() == rule->store();
      });
  if (last != core_.controls.rend()) {
    const auto begin =
        std::remove_if(core_.controls.begin(), last.base() - 1,
                       [&](const RulePtr& old) { return old->store() == rule->store(); });
    core_.controls.erase(begin, last.base() - 1);
  }
  core_.controls.push_back(rule);
  for (auto& [id, key] : core_.keys) {
    if (key.is_barrier || key.own || StoreOf(key.meta.name) != rule->store()) continue;
    const auto from = from_rounds.find(id);
    const bool is_listed = from != from_rounds.end();
    if (!is_listed && (message.flags & kOnlyListed) != 0 && key.meta.mode == KeyMeta::Mode::kSync) {
      continue;
    }
    key.pending.push_back({++core_.control_count, is_listed ? from->second : 0, rule});
  }
  replies_.Answer(session, message, Reply(message, Type::kOk), effects);
}

void Controls::OnWithdraw(Session* session, const Message& message, Effects* effects) {
  DropRules(session->id.rank, session->id.incarnation, message.number - 1);
  replies_.Answer(session, message, Reply(message, Type::kOk), effects);
}

void Controls::DropRules(Rank rank, uint64_t incarnation, uint64_t after_generation) {
  const auto is_dropped = [&](const RulePtr& rule) {
    return rule->SentBy(rank, incarnation) && rule->generation() > after_generation;
  };
  std::erase_if(core_.controls, is_dropped);
  for (auto& [id, key] : core_.keys) {
    std::erase_if(key.pending,
                  [&](const StoredKey::Pending& pending) { return is_dropped(pending.rule); });
  }
  for (auto& [id, chunk] : core_.chunks) {
    if (chunk.former && is_dropped(chunk.former->tried)) ChunkEditor::TakeBack(&chunk);
  }
}

bool Controls::IsCommitted(const Rule& rule) const {
  return core_.epoch().CommittedBy(rule.sender(), rule.incarnation()) >= rule.generation();
}

bool Controls::IsSettled(const Rule& rule) const {
  return IsCommitted(rule) &&
         core_.members.IsOver(Role::kWorker, {rule.sender(), rule.incarnation()});
}

void Controls::Apply(StoredKey* key, Chunk* chunk) {
  if (key->pending.empty()) return;
  for (const StoredKey::Pending& pending : key->pending) {
    if (pending.number <= chunk->control) continue;
    if (pending.from_round > chunk->version + 1 && key->meta.mode == KeyMeta::Mode::kSync) continue;
    // The rule of a synchronous round is final: the round waits for the rule's sender, and the
    // sender pushes only after the commit.
    if (key->meta.mode == KeyMeta::Mode::kSync || IsSettled(*pending.rule)) {
      core_.editor.SetRule(chunk, pending.rule);
      chunk->former.reset();
    } else {
      core_.editor.TryRule(chunk, pending.rule);
    }
    chunk->control = pending.number;
  }
  const auto applied_everywhere = [&](const StoredKey::Pending& pending) {
    return std::all_of(key->chunks.begin(), key->chunks.end(), [&](uint32_t c) {
      const auto other = core_.chunks.find({IdOf(key->meta.name), c});
      return other == core_.chunks.end() || other->second.control >= pending.number;
    });
  };
  while (!key->pending.empty() && applied_everywhere(key->pending.front())) {
    key->pending.erase(key->pending.begin());
  }
}

Chunk Controls::WithDueRule(const StoredKey& key, const Chunk& chunk) {
  Chunk next = chunk;
  for (const StoredKey::Pending& pending : key.pending) {
    if (pending.number <= chunk.control || pending.from_round > chunk.version + 1) continue;
    core_.editor.SetRule(&next, pending.rule);
  }
  return next;
}

}  // namespace tkv
