// The life cycle of operations: their beginning, their order, and their end.

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

bool HasRound(const Operation& operation) {
  return operation.Is<Operation::Push, Operation::PushPull, Operation::Barrier>();
}

// Returns true if an observer may start the operation.
bool IsReading(const Operation& operation) {
  return operation.Is<Operation::Open, Operation::Pull, Operation::FindBase, Operation::Stats,
                      Operation::List, Operation::Describe>();
}

Bytes CopyOf(const Bytes& bytes) {
  const auto copy = std::make_shared<std::vector<std::byte>>(bytes.data, bytes.data + bytes.size);
  return {copy->data(), bytes.size, copy};
}

}  // namespace

std::string Client::Prefix(const Op& op) const {
  if (op.operation.key.empty() || op.operation.Is<Operation::Barrier>()) return op.operation.verb;
  return Format("{} {}", op.operation.verb, ShownKey(op.operation.key));
}

Error Client::Prefixed(const Op& op, const Error& error) const {
  return {error.code(), Format("{}: {}", Prefix(op), error.what())};
}

OpId Client::Start(Operation operation, Time now) {
  const OpId id = ++last_op_;
  Op& op = ops_.Add(id);
  op.id = id;
  op.operation = std::move(operation);
  if (op.operation.Is<Operation::Barrier>())
    op.operation.key = InternalKey(op.operation.store, "barrier");
  op.key = IdOf(op.operation.key);
  op.begin = now;
  op.deadline = now + (op.operation.patience > 0 ? op.operation.patience : options_.patience);
  op.notice_step = options_.first_notice;
  op.next_notice = now + options_.first_notice;
  JoinList(&op);
  SetTimer(op);
  if (closed_ || has_left_) {
    Fail(&op, closed_ ? *closed_ : StoreIsClosed());
    return id;
  }
  if (role_ == Role::kObserver && !IsReading(op.operation)) {
    Fail(&op, Error(Code::kFailedPrecondition, "an observer only reads"));
    return id;
  }
  if (op.operation.Is<Operation::Control>()) {
    announcements_.Add(id, op.operation.store);
    if (head_.is_lost()) Rearm(now + kSecond / 10);
  } else if (op.operation.Is<Operation::Leave>()) {
    leaving_.insert(id);
    if (head_.is_lost()) Rearm(now + kSecond / 10);
  } else if (op.operation.Is<Operation::NewestEpoch>()) {
    awaiting_epoch_.insert(id);
    if (head_.is_lost()) Rearm(now + kSecond / 10);
  } else if (op.operation.Is<Operation::Close>()) {
    closing_.insert(id);
  } else if (op.operation.Is<Operation::Read>()) {
    StartRead(&op);
  } else if (op.operation.Is<Operation::Release>()) {
    StartRelease(&op);
  } else if (op.operation.Is<Operation::Trace>()) {
    StartTrace(&op);
  } else if (op.operation.Is<Operation::List>()) {
    StartList(&op);
  } else if (op.operation.Is<Operation::Describe>()) {
    StartDescribe(&op);
  } else {
    if (op.operation.push() != nullptr) pushes_.push_back(id);
    KeyState& key = keys_[op.key];
    if (!key.is_ready && op.operation.key == InternalKey(StoreOf(op.operation.key), "barrier")) {
      barriers_.insert(op.key);
      key.is_barrier = key.is_ready = true;
      key.must_join = welcome_.rejoined;
      key.meta.name = op.operation.key;
      key.meta.shape = Shape({0});
    }
    key.queue.push_back(id);
    Wake(op.key);
  }
  return id;
}

void Client::Cancel(std::span<const OpId> ids, const Error& error, Time now, Effects* effects) {
  now_ = now;
  PrepareToFail(ids);
  for (const OpId id : ids) {
    Op* const op = Find(id);
    if (op != nullptr && !TakeBackIfSent(op, error)) Fail(op, error);
  }
  Settle(now, effects);
}

// Reports the failure of a cancelled change of the updater, and takes its CONTROLs back from the
// servers: they would use the rule for later rounds.
//   returns  false  the operation is none, or no server has it
bool Client::TakeBackIfSent(Op* op, const Error& error) {
  const Announcement* const change = announcements_.Find(op->id);
  if (change == nullptr || !change->has_started()) return false;
  if (!std::exchange(op->is_reported, true)) {
    outcomes_.push_back({op->id, Outcome::Event::kFailed, Prefixed(*op, error), op->round, {}});
  }
  if (change->phase == Announcement::Phase::kWithdrawing) return true;
  op->deadline = now_ + options_.server_patience;
  Withdraw(op, error);
  return true;
}

void Client::Detach(std::span<const OpId> ids) {
  OwnBodies(ids);
  for (const OpId id : ids) {
    Op* const op = Find(id);
    if (op == nullptr || !op->LendsValue()) continue;
    // Messages that do not exist yet will read the value.
    const bool is_read_on = !op->has_started || op->operation.Is<Operation::Init>();
    Bytes& value = op->operation.value()->bytes;
    value = is_read_on ? CopyOf(value) : Bytes();
    op->owns_value = true;  // last: if CopyOf throws for lack of memory, Detach can be retried
  }
}

// Replaces the bodies of all messages of these operations by copies, so that the user gets the
// memory back.  Sent messages without an answer are included, because they may be sent again.  All
// operations share one pass over the messages.
void Client::OwnBodies(std::span<const OpId> ids) {
  std::vector<OpId> lending;
  for (const OpId id : ids) {
    const Op* const op = Find(id);
    if (op != nullptr && op->LendsValue()) lending.push_back(id);
  }
  if (lending.empty()) return;
  const auto own = [&](Outgoing* outgoing) {
    Bytes& body = outgoing->message.body;
    if (body.size > 0 && std::ranges::binary_search(lending, outgoing->op)) body = CopyOf(body);
  };
  for (ServerLink& link : links_) link.ForEachPush(own);
}

// Prepares operations to fail: cancels their pulls, and stops reading the user's memory.
void Client::PrepareToFail(std::span<const OpId> ids) {
  OwnBodies(ids);
  CancelPulls(ids, false);
  for (const OpId id : ids) {
    Op* const op = Find(id);
    if (op == nullptr) continue;
    op->owns_value = true;
    op->unpulled = 0;
  }
}

void Client::WakeAll() {
  for (const KeyId& id : SortedKeys()) ready_.push_back(id);
}

// Drops accepted and failed pushes from the front of the list, and wakes the barriers, which wait
// for all earlier pushes.
void Client::ForgetPushes() {
  const size_t count = pushes_.size();
  while (!pushes_.empty()) {
    const Op* const op = Find(pushes_.front());
    if (op != nullptr && !op->is_accepted) break;
    pushes_.pop_front();
  }
  if (pushes_.size() < count) ready_.insert(ready_.end(), barriers_.begin(), barriers_.end());
}

// Returns the keys in ascending order: the order of messages may not depend on a hash table.
std::vector<KeyId> Client::SortedKeys() const {
  std::vector<KeyId> ids;
  ids.reserve(keys_.size());
  for (const auto& [id, key] : keys_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

void Client::Settle(Time now, Effects* effects) {
  now_ = now;
  if (closed_) return ready_.clear();
  do {
    FailLostRounds();
    for (size_t i = 0; i < ready_.size(); ++i) Advance(KeyId(ready_[i]));
    ready_.clear();
    AdvanceAnnouncements(effects);
    AdvanceCloses();
    AdvanceLeaves(effects);
    AdvanceNewestEpochs(effects);
    std::vector<uint32_t> servers = std::exchange(pump_, {});
    std::sort(servers.begin(), servers.end());
    for (const uint32_t server : servers) {
      ServerLink& link = links_[server];
      link.Unmark();
      PumpLink(&link, now, effects);
      link.NoteWait(now_, &waits_);
    }
  } while (!ready_.empty() || !pump_.empty() || !lost_pushes_.empty());
}

// Says goodbye to the head when all earlier pushes are accepted.
void Client::AdvanceLeaves(Effects* effects) {
  for (const OpId id : leaving_) {
    Op& op = *Find(id);
    if (op.has_started || (!pushes_.empty() && pushes_.front() < id)) continue;
    op.has_started = true;
    Message goodbye;
    goodbye.type = Type::kGoodbye;
    goodbye.number = op.operation.As<Operation::Leave>()->failure ? 1 : 0;
    goodbye.seq = id;
    head_.Send(std::move(goodbye), effects);
  }
}

// Asks the head for the number of its EPOCH, and waits until this client has that EPOCH.  The head
// sends it by itself.
void Client::AdvanceNewestEpochs(Effects* effects) {
  const std::set<OpId> waiting = awaiting_epoch_;  // a copy: operations may end here
  for (const OpId id : waiting) {
    Op& op = *Find(id);
    if (op.has_started) {
      if (op.round > 0 && epoch_.number >= op.round) Finish(&op);
      continue;
    }
    op.has_started = true;
    Message ping;
    ping.type = Type::kPing;
    ping.number = epoch_.number;
    ping.seq = id;
    head_.Send(std::move(ping), effects);
  }
}

void Client::Advance(const KeyId& id) {
  const auto found = keys_.find(id);
  if (found == keys_.end()) return;
  KeyState& key = found->second;
  while (!key.queue.empty()) {
    const OpId first = key.queue.front();
    Op* const op = Find(first);
    if (op != nullptr && !TryStart(id, &key, op)) {  // TryStart may have ended it
      if (Op* const held = Find(first)) NoteWait(key, held);
      return;
    }
    if (Op* const started = Find(first)) started->wait.ForNothing(now_, &waits_);
    if (!key.queue.empty() && key.queue.front() == first) key.queue.erase(key.queue.begin());
  }
  if (!key.is_ready && key.opening == kNoOp) keys_.erase(found);
}

// Returns false if the operation has to wait.  A change of its key's state causes the next attempt.
bool Client::TryStart(const KeyId& id, KeyState* key, Op* op) {
  const Operation& operation = op->operation;
  if (op->has_started) return true;
  if (op->expired || key->opening != kNoOp) return false;
  if (key->is_stale) {
    if (!CanJoin(*key)) return false;
    Forget(key);
    if (operation.Is<Operation::Delete>()) {  // the servers have deleted it already
      Finish(op);
      return true;
    }
  }
  if (operation.Is<Operation::Init, Operation::Open>()) {
    if (key->is_ready && operation.Is<Operation::Init>()) {
      Fail(op, Error(Code::kAlreadyExists, "the key is there already"));
      return true;
    }
    if (!key->is_ready || !key->must_join) {
      const uint32_t store = StoreOf(op->operation.key);
      if (welcome_.rejoined && !announcements_.MayInit(op->id, store)) return false;
      StartInit(id, key, op);
      return true;
    }
    PlaceChunks(id, key);  // an open of a key whose round is not known yet
    if (!CanJoin(*key)) return false;
    key->opening = op->id;
    op->has_started = true;
    StartJoin(id, key);
    return true;
  }
  if (!key->is_ready) {
    Fail(op, Error(Code::kNotFound, "no such key; init it first"));
    return true;
  }
  if (operation.Is<Operation::Delete>()) {
    if (!CanJoin(*key)) return false;
    StartDelete(id, key, op);
    return true;
  }
  if (operation.Is<Operation::FindBase, Operation::Stats>()) {
    PlaceChunks(id, key);
    StartStatus(id, key, op);
    return true;
  }
  if (operation.Is<Operation::Restore>()) {
    if (!CanJoin(*key)) return false;
    PlaceChunks(id, key);
    if (key->must_join) {
      StartJoin(id, key);
      return false;
    }
    StartRestore(id, key, op);
    return true;
  }
  PlaceChunks(id, key);
  if (key->must_join) {
    if (CanJoin(*key)) StartJoin(id, key);
    return false;
  }
  if (HasRound(operation)) return TryPush(id, key, op);
  StartPulls(id, key, op);
  return true;
}

void Client::PlaceChunks(const KeyId& id, KeyState* key) {
  if (!key->chunks.empty()) return;
  if (epoch_.placement.servers == 0) return;
  key->chunks.resize(key->meta.chunk_count());
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    key->chunks[c].server = ServerOf(epoch_.placement, id, c);
  }
}

void Client::FinishIfDone(Op* op) {
  if (HasRound(op->operation) && op->has_started && op->unaccepted == 0 && !op->is_accepted) {
    op->is_accepted = true;
    outcomes_.push_back({op->id, Outcome::Event::kAccepted, std::nullopt, op->round, {}});
    ForgetPushes();
  }
  if (op->unaccepted > 0 || op->unpulled > 0) return;
  if (op->cancelled) return Fail(op, TimeoutOf(*op));
  Finish(op);
}

void Client::Finish(Op* op) {
  op->wait.ForNothing(now_, &waits_);
  Outcome outcome{op->id, Outcome::Event::kDone, std::nullopt, op->round, {}};
  if (!op->versions.empty() && !op->operation.Is<Operation::Push>()) {
    outcome.round = *std::max_element(op->versions.begin(), op->versions.end());
  }
  if (role_ == Role::kObserver &&
      op->operation.Is<Operation::Pull>()) {  // workers count from the base
    if (const auto key = keys_.find(op->key); key != keys_.end()) outcome.round += key->second.base;
  }
  if (op->operation.Is<Operation::Stats>()) outcome.result = op->table;
  if (const auto key = keys_.find(op->key); key != keys_.end()) {
    const auto meta = [&] { return std::make_shared<const KeyMeta>(key->second.meta); };
    if (op->operation.Is<Operation::Init, Operation::Open>())
      outcome.result = Outcome::Found{meta()};
    if (op->operation.Is<Operation::Cut>()) {
      auto states = std::make_shared<const std::vector<ChunkState>>(std::move(op->states));
      outcome.result = Outcome::Cut{meta(), std::move(states)};
    }
    if (key->second.opening == op->id) key->second.opening = kNoOp;
    Wake(op->key);
  }
  if (op->operation.Is<Operation::Control>()) NoteCommitted(*op);
  if (!IsRepeat(*op)) outcomes_.push_back(std::move(outcome));
  Erase(op);
}

void Client::Erase(Op* op) {
  if (!op->expired) LeaveList(op);
  head_.End(op->id);
  if (op->operation.Is<Operation::Control>()) announcements_.End(op->id);
  leaving_.erase(op->id);
  awaiting_epoch_.erase(op->id);
  closing_.erase(op->id);
  ops_.Erase(op->id);
}

// Ends an operation with an error.  Advance removes it later from the key's queue.  Its pushes are
// still sent: the round needs them, and other chunks of them may have arrived.
void Client::Fail(Op* op, const Error& error) {
  const OpId id = op->id;
  op->wait.ForNothing(now_, &waits_);
  PrepareToFail({&id, 1});
  const Error told = Prefixed(*op, error);
  const bool is_repeat = IsRepeat(*op);
  if (!is_repeat && !op->is_reported) {
    outcomes_.push_back({id, Outcome::Event::kFailed, told, op->round, {}});
  }
  if (const auto key = keys_.find(op->key); key != keys_.end()) {
    KeyState& state = key->second;
    if (state.opening == id) {
      state.opening = kNoOp;
      state.was_tried = state.was_tried || op->creating != Creating::kNone;
      state.chunks.clear();
    }
    Wake(op->key);
  }
  if (is_repeat) FailPushesFor(op->operation.store, told);
  Erase(op);
  ForgetPushes();
}

// Fails the first operation in the key's queue that has not started.
void Client::FailFirstQueued(KeyState* key, const Error& error) {
  for (const OpId id : key->queue) {
    Op* const op = Find(id);
    if (op == nullptr || op->has_started) continue;
    Wake(op->key);
    return Fail(op, error);
  }
}

void Client::FailAll(const Error& error) {
  std::vector<OpId> ids;
  ids.reserve(ops_.size());
  ops_.ForEach([&](OpId id, const Op&) { ids.push_back(id); });
  std::sort(ids.begin(), ids.end());
  for (ServerLink& link : links_) link.Forget();  // no message may leave any more
  for (const OpId id : ids) {
    if (Op* const op = Find(id)) Fail(op, error);
  }
  ready_.clear();
  lost_pushes_.clear();
  pump_.clear();
  for (ServerLink& link : links_) link.Unmark();
  announcements_.Clear();
}

}  // namespace tkv
