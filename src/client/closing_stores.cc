#include "client/closing_stores.h"

#include <algorithm>
#include <set>
#include <vector>

namespace tkv {

void ClosingStores::Advance() {
  const std::set<OpId> closing = core_.closes;  // a copy: operations may end here
  for (const OpId id : closing) {
    Op* const op = core_.ops.Find(id);
    if (op->has_started || IsInUse(op->operation.store, id)) continue;
    op->has_started = true;
    FailStore(op->operation.store, id);
    for (const ServerLink& link : core_.links) {
      if (link.dead()) continue;
      Outgoing close;
      close.op = id;
      close.message.type = Type::kClose;
      close.message.chunk = op->operation.store;
      ++op->unaccepted;
      core_.Queue(link.server(), std::move(close));
    }
    if (op->unaccepted > 0) continue;
    End(op);
  }
}

// A server out of reach gets its CLOSE later: ServerSessions::Abandon keeps it.
void ClosingStores::OnAnswer(Op* op) {
  if (op->unaccepted == 0) End(op);
}

void ClosingStores::End(Op* close) {
  const uint32_t store = close->operation.store;
  core_.announcements.ForgetLast(store);
  core_.keys.EraseStore(store);
  core_.Finish(close);
}

// Returns true if an earlier push of the store is not accepted or an earlier change of its updater
// has not ended.
bool ClosingStores::IsInUse(uint32_t store, OpId close) const {
  const auto is_open = [&](OpId id) {
    const Op* const op = core_.ops.Find(id);
    if (op == nullptr || id > close) return false;
    return !op->is_accepted && StoreOf(op->operation.key) == store;
  };
  return std::any_of(core_.pushes.begin(), core_.pushes.end(), is_open) ||
         core_.announcements.IsInUse(store, close);
}

void ClosingStores::FailStore(uint32_t store, OpId close) {
  const std::vector<OpId> ids = core_.ops.Where([&](const Op& op) {
    const bool of_key = !op.operation.key.empty() && StoreOf(op.operation.key) == store;
    const bool is_control = op.operation.Is<Operation::Control>() && op.operation.store == store;
    return op.id != close && (of_key || is_control);
  });
  core_.PrepareToFail(ids);
  for (const OpId id : ids) {
    if (Op* const op = core_.ops.Find(id)) core_.Fail(op, StoreIsClosed());
  }
}

}  // namespace tkv
