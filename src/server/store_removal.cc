#include "server/store_removal.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/format.h"

namespace tkv {

void StoreRemoval::OnClose(Session* session, const Message& message, Effects* effects) {
  const uint32_t store = message.chunk;
  if (!session->closed.Add(store)) {
    return replies_.AnswerError(
        session, message, Code::kResourceExhausted,
        Format("more than {} stores are closed while an earlier one is open", ClosedStores::kMax),
        effects);
  }
  replies_.Answer(session, message, Reply(message, Type::kOk), effects);
  core_.half_closed.insert(store);
  if (IsClosedByAll(store)) return Remove(store, effects);
  AnswerWaiting(store, effects);
}

void StoreRemoval::Recheck(Effects* effects) {
  const std::set<uint32_t> stores = core_.half_closed;
  for (const uint32_t store : stores) {
    if (IsClosedByAll(store)) {
      Remove(store, effects);
    } else if (std::ranges::none_of(core_.sessions.all(), [&](const auto& session) {
                 return session.second.closed.Has(store);
               })) {
      core_.half_closed.erase(store);
    }
  }
}

void StoreRemoval::AnswerWaiting(uint32_t store, Effects* effects) {
  describes_.Recheck(effects);
  for (auto& [id, chunk] : core_.chunks) {
    StoredKey& key = core_.keys.at(id.key);
    if (key.store != store) continue;
    rounds_.Complete(id, &key, &chunk, effects);
    pulls_.AnswerParked(id, key, &chunk, effects);
  }
}

bool StoreRemoval::IsClosedByAll(uint32_t store) const {
  bool by_somebody = false;
  for (Rank rank = 0; static_cast<size_t>(rank) < core_.epoch().workers.size(); ++rank) {
    if (core_.epoch().IsLast(rank)) continue;
    if (!core_.HasClosed(rank, store)) return false;
    by_somebody = true;
  }
  return by_somebody;
}

void StoreRemoval::Remove(uint32_t store, Effects* effects) {
  std::vector<KeyId> ids = {IdOf(InternalKey(store, "barrier"))};
  for (const auto& [id, key] : core_.keys) {
    if (!key.is_barrier && StoreOf(key.meta.name) == store) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const KeyId& id : ids) catalog_.Erase(id, "the store is closed", effects);
  core_.half_closed.erase(store);
  core_.dropped.Add(store);
  describes_.Recheck(effects);
  std::erase_if(core_.controls, [&](const RulePtr& rule) { return rule->store() == store; });
  core_.grants.DropStore(store);
  core_.cuts.DropStore(store);
}

}  // namespace tkv
