// The beginning of operations, the order of those of one key, and the passing of time.

#include <utility>

#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

// Returns true if an observer may start the operation.
bool IsReading(const Operation& operation) {
  return operation.Is<Operation::Open, Operation::Pull, Operation::FindBase, Operation::Stats,
                      Operation::List, Operation::Describe>();
}

}  // namespace

Client::Client(ClientOptions options) : Client(ClientCore(std::move(options))) {}

Client::Client(ClientCore core)
    : core_(std::move(core)),
      finder_(&core_),
      maker_(&core_, &finder_),
      cuts_(&core_),
      announcer_(&core_, &finder_),
      pusher_(&core_, &announcer_),
      closing_(&core_),
      head_(&core_, &announcer_),
      questions_(&core_),
      waits_(&core_, &announcer_),
      sessions_(&core_, [this](const auto&... arguments) { OnAnswer(arguments...); }) {}

OpId Client::Start(Operation operation, Time now) {
  if (operation.Is<Operation::Barrier>()) {
    operation.key = InternalKey(operation.store, "barrier");
  }
  Op& op = core_.Add(std::move(operation), now);
  const OpId id = op.id;
  if (core_.closed || core_.has_left) {
    core_.Fail(&op, core_.closed ? *core_.closed : StoreIsClosed());
    return id;
  }
  if (core_.members.is_observer() && !IsReading(op.operation)) {
    core_.Fail(&op, Error(Code::kFailedPrecondition, "an observer only reads"));
    return id;
  }
  const bool needs_head =
      op.operation.Is<Operation::Control, Operation::Leave, Operation::NewestEpoch>();
  if (needs_head && core_.head.is_lost()) core_.Rearm(now + kSecond / 10);
  StartAlone(&op);
  return id;
}

// Starts an operation that is not ordered with others, or notes it for Settle.
void Client::StartAlone(Op* op) {
  if (op->operation.Is<Operation::Control>()) {
    core_.announcements.Add(op->id, op->operation.store);
  } else if (op->operation.Is<Operation::Leave>()) {
    core_.leaves.insert(op->id);
  } else if (op->operation.Is<Operation::NewestEpoch>()) {
    core_.newest_epochs.insert(op->id);
  } else if (op->operation.Is<Operation::Close>()) {
    core_.closes.insert(op->id);
  } else if (op->operation.Is<Operation::Read>()) {
    cuts_.StartRead(op);
  } else if (op->operation.Is<Operation::Release>()) {
    cuts_.StartRelease(op);
  } else if (op->operation.Is<Operation::Trace>()) {
    questions_.StartTrace(op);
  } else if (op->operation.Is<Operation::List>()) {
    questions_.StartList(op);
  } else if (op->operation.Is<Operation::Describe>()) {
    questions_.StartDescribe(op);
  } else {
    Enqueue(op);
  }
}

// Puts an operation behind the others of its key.
void Client::Enqueue(Op* op) {
  const Operation& operation = op->operation;
  if (operation.push() != nullptr) core_.pushes.push_back(op->id);
  ClientKey& key = core_.keys.FindOrAdd(op->key);
  if (!key.is_ready && operation.key == InternalKey(StoreOf(operation.key), "barrier")) {
    core_.keys.MakeBarrier(op->key, operation.key, &key);
    key.must_join = core_.members.welcome.rejoined;
  }
  key.queue.push_back(op->id);
  core_.keys.Wake(op->key);
}

void Client::Cancel(std::span<const OpId> ids, const Error& error, Time now, Effects* effects) {
  core_.now = now;
  core_.PrepareToFail(ids);
  for (const OpId id : ids) {
    Op* const op = core_.ops.Find(id);
    if (op == nullptr) continue;
    // Servers that have a change of the updater would use the rule for later rounds.
    if (announcer_.WithdrawIfSent(op, error)) continue;
    core_.Fail(op, error);
  }
  Settle(now, effects);
}

void Client::Detach(std::span<const OpId> ids) { core_.Detach(ids); }

void Client::Settle(Time now, Effects* effects) {
  core_.now = now;
  if (core_.closed) return core_.keys.ForgetReady();
  do {
    pusher_.FailLostRounds();
    core_.keys.TakeReady([this](const KeyId& id) { Advance(id); });
    announcer_.Advance(effects);
    closing_.Advance();
    head_.Advance(effects);
    sessions_.Send(now, effects);
  } while (core_.keys.has_ready() || core_.has_pumped() || !core_.lost_pushes.empty());
}

void Client::Advance(const KeyId& id) {
  ClientKey* const key = core_.keys.Find(id);
  if (key == nullptr) return;
  while (!key->queue.empty()) {
    const OpId first = key->queue.front();
    Op* const op = core_.ops.Find(first);
    if (op != nullptr && !TryStart(id, key, op)) {  // TryStart may have ended it
      if (Op* const held = core_.ops.Find(first)) {
        held->wait.For(key->WhyHeld(), core_.now, &core_.waits);
      }
      return;
    }
    if (Op* const started = core_.ops.Find(first)) {
      started->wait.ForNothing(core_.now, &core_.waits);
    }
    if (!key->queue.empty() && key->queue.front() == first) key->queue.erase(key->queue.begin());
  }
  if (!key->is_ready && key->opening == kNoOp) core_.keys.Erase(id);
}

// Returns false if the operation has to wait.  A change of its key's state causes the next attempt.
bool Client::TryStart(const KeyId& id, ClientKey* key, Op* op) {
  const Operation& operation = op->operation;
  if (op->has_started) return true;
  if (op->expired || key->opening != kNoOp) return false;
  if (key->is_stale) {
    if (!key->CanJoin()) return false;
    key->Reset();
    if (operation.Is<Operation::Delete>()) {  // the servers have deleted it already
      core_.Finish(op);
      return true;
    }
  }
  if (operation.Is<Operation::Init, Operation::Open>()) return TryFind(id, key, op);
  if (!key->is_ready) {
    core_.Fail(op, Error(Code::kNotFound, "no such key; init it first"));
    return true;
  }
  if (operation.Is<Operation::Delete>()) {
    if (!key->CanJoin()) return false;
    maker_.StartDelete(id, key, op);
    return true;
  }
  core_.PlaceChunks(id, key);
  if (operation.Is<Operation::FindBase, Operation::Stats>()) {
    cuts_.StartStatus(id, key, op);
    return true;
  }
  const bool restores = operation.Is<Operation::Restore>();
  if (restores && !key->CanJoin()) return false;
  if (key->must_join) {
    if (key->CanJoin()) finder_.Start(id, key);
    return false;
  }
  if (restores) {
    cuts_.StartRestore(id, key, op);
    return true;
  }
  if (HasRound(operation)) return pusher_.TryPush(id, key, op);
  pusher_.StartPulls(id, key, op);
  return true;
}

// Starts an init or an open.
bool Client::TryFind(const KeyId& id, ClientKey* key, Op* op) {
  if (key->is_ready && op->operation.Is<Operation::Init>()) {
    core_.Fail(op, Error(Code::kAlreadyExists, "the key is there already"));
    return true;
  }
  if (!key->is_ready || !key->must_join) {
    const uint32_t store = StoreOf(op->operation.key);
    if (core_.members.welcome.rejoined && !core_.announcements.MayInit(op->id, store)) return false;
    maker_.StartInit(id, key, op);
    return true;
  }
  core_.PlaceChunks(id, key);  // an open of a key whose round is not known yet
  if (!key->CanJoin()) return false;
  key->opening = op->id;
  op->has_started = true;
  finder_.Start(id, key);
  return true;
}

void Client::Tick(Time now, Effects* effects) {
  if (now < core_.next_timer) return;
  core_.now = now;
  core_.next_timer = kNever;
  if (core_.closed) return;
  const LinkTurn turn = core_.Turn(now, effects);
  sessions_.Tick(turn);
  waits_.Tick(now, effects);
  if (core_.head.OutOfReach(now)) head_.FailRequests(effects);
  Settle(now, effects);
  core_.Rearm(core_.ops.NextTimer());
  const bool needs_head =
      !core_.announcements.empty() || !core_.leaves.empty() || !core_.newest_epochs.empty();
  if (core_.head.is_lost() && needs_head) {
    core_.Rearm(std::max(core_.head.GivesUpAt(), now + kSecond));
  }
  for (const ServerLink& link : core_.links) link.Rearm(turn);
}

}  // namespace tkv
