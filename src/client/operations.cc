// What operations do: which message leaves when.

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

using Kind = Operation::Kind;

bool IsPush(Kind kind) {
  return kind == Kind::kPush || kind == Kind::kPushPull || kind == Kind::kBarrier;
}

Bytes CopyOf(const Bytes& bytes) {
  const auto copy = std::make_shared<std::vector<std::byte>>(bytes.data, bytes.data + bytes.size);
  return {copy->data(), bytes.size, copy};
}

}  // namespace

std::string Client::Head(const Op& op) const {
  if (op.what.key.empty() || op.what.kind == Kind::kBarrier) return op.what.verb;
  return Format("{} {}", op.what.verb, ShownKey(op.what.key));
}

Error Client::Prefixed(const Op& op, const Error& error) const {
  return {error.code(), Format("{}: {}", Head(op), error.what())};
}

OpId Client::Start(Operation operation, Time now) {
  const OpId id = ++last_op_;
  Op& op = ops_.Add(id);
  op.id = id;
  op.what = std::move(operation);
  if (op.what.kind == Kind::kBarrier) op.what.key = InternalKey(op.what.store, "barrier");
  op.key = IdOf(op.what.key);
  op.begin = now;
  op.deadline = now + (op.what.patience > 0 ? op.what.patience : options_.patience);
  op.notice_step = options_.first_notice;
  op.next_notice = now + options_.first_notice;
  Rearm(std::min(op.deadline, op.next_notice));
  if (closed_ || has_left_) {
    Fail(&op, closed_ ? *closed_ : Error(Code::kFailedPrecondition, "this worker has left"));
    return id;
  }
  if (role_ == Role::kObserver && op.what.kind != Kind::kOpen && op.what.kind != Kind::kPull) {
    Fail(&op, Error(Code::kFailedPrecondition, "an observer only reads"));
    return id;
  }
  if (op.what.kind == Kind::kControl) {
    controls_.push_back(id);
  } else if (op.what.kind == Kind::kLeave) {
    leaving_.insert(id);
    if (head_lost_since_ != kNever) Rearm(now + kSecond / 10);
  } else if (op.what.kind == Kind::kClose) {
    closing_.insert(id);
  } else {
    if (IsPush(op.what.kind) && op.what.kind != Kind::kBarrier) pushes_.push_back(id);
    KeyState& key = keys_[op.key];
    if (!key.is_ready && op.what.key == InternalKey(StoreOf(op.what.key), "barrier")) {
      barriers_.insert(op.key);
      key.is_barrier = key.is_ready = true;
      key.must_join = welcome_.rejoined;
      key.meta.name = op.what.key;
      key.meta.shape = Shape({0});
    }
    key.queue.push_back(id);
    Wake(op.key);
  }
  return id;
}

void Client::Cancel(OpId id, const Error& error, Time now, Effects* effects) {
  now_ = now;
  if (Op* const op = Find(id)) Fail(op, error);
  Settle(now, effects);
}

void Client::Detach(OpId id) {
  Op* const op = Find(id);
  if (op == nullptr || op->owns_value || op->what.value.bytes.size == 0) return;
  OwnBodies(*op);
  op->owns_value = true;
  // Messages that are still to be made will read the value.
  const bool is_read_on = !op->has_left || op->what.kind == Kind::kInit;
  Bytes& value = op->what.value.bytes;
  value = is_read_on ? CopyOf(value) : Bytes();
}

// The operation's messages that wait to leave, or for an answer and may have to be sent again, go
// on with copies of what they carry: the memory that they point to goes back to its user.
void Client::OwnBodies(const Op& op) {
  if (op.owns_value || op.what.value.bytes.size == 0) return;
  const auto own = [&](Outgoing* outgoing) {
    Bytes& body = outgoing->message.body;
    if (outgoing->op == op.id && body.size > 0) body = CopyOf(body);
  };
  for (ServerSession& session : sessions_) {
    for (Outgoing& waiting : session.pushes) own(&waiting);
    for (auto& [seq, sent] : session.sent) own(&sent);
  }
}

void Client::WakeAll() {
  for (const KeyId& id : SortedKeys()) ready_.push_back(id);
}

// A push has been accepted, or has failed: barriers wait for those that were given before them.
void Client::ForgetPushes() {
  const size_t count = pushes_.size();
  while (!pushes_.empty()) {
    const Op* const op = Find(pushes_.front());
    if (op != nullptr && !op->accepted_told) break;
    pushes_.pop_front();
  }
  if (pushes_.size() < count) ready_.insert(ready_.end(), barriers_.begin(), barriers_.end());
}

// What a server sees may not depend on where a table has put its keys.
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
    for (size_t i = 0; i < ready_.size(); ++i) Advance(KeyId(ready_[i]));
    ready_.clear();
    AdvanceControl(effects);
    AdvanceCloses();
    for (const OpId id : leaving_) {
      Op& op = *Find(id);
      if (op.has_left || (!pushes_.empty() && pushes_.front() < id)) continue;
      op.has_left = true;
      Message goodbye;
      goodbye.type = Type::kGoodbye;
      goodbye.seq = id;
      effects->to_head.push_back(std::move(goodbye));
    }
    std::vector<uint32_t> servers = std::exchange(pump_, {});
    std::sort(servers.begin(), servers.end());
    for (const uint32_t server : servers) {
      sessions_[server].is_to_pump = false;
      PumpSession(&sessions_[server], now, effects);
      NoteWait(sessions_[server], &sessions_[server].counts.wait);
    }
  } while (!ready_.empty() || !pump_.empty());
}

void Client::Advance(const KeyId& id) {
  const auto found = keys_.find(id);
  if (found == keys_.end()) return;
  KeyState& key = found->second;
  while (!key.queue.empty()) {
    const OpId first = key.queue.front();
    Op* const op = Find(first);
    if (op != nullptr && !TryStart(id, &key, op)) {  // it may have ended there
      if (Op* const held = Find(first)) NoteWait(key, held);
      return;
    }
    if (Op* const started = Find(first)) started->wait.ForNothing(now_, &waits_);
    if (!key.queue.empty() && key.queue.front() == first) key.queue.erase(key.queue.begin());
  }
  if (!key.is_ready && key.opening == kNoOp) keys_.erase(found);
}

// False where the operation has to wait; it is tried again when something of its key has changed.
bool Client::TryStart(const KeyId& id, KeyState* key, Op* op) {
  const Kind kind = op->what.kind;
  if (op->has_left) return true;
  if (op->expired || key->opening != kNoOp) return false;
  if (key->is_stale) {
    if (!CanJoin(*key)) return false;
    Forget(key);
    if (kind == Kind::kDelete) {  // that is all there is to delete
      Finish(op);
      return true;
    }
  }
  if (kind == Kind::kInit || kind == Kind::kOpen) {
    if (key->is_ready && kind == Kind::kInit) {
      Fail(op, Error(Code::kAlreadyExists, "the key is there already"));
      return true;
    }
    if (!key->is_ready || !key->must_join) {
      StartInit(id, key, op);
      return true;
    }
    MakePlaces(id, key);  // an open of a key whose round is not known yet
    if (!CanJoin(*key)) return false;
    key->opening = op->id;
    op->has_left = true;
    StartJoin(id, key);
    return true;
  }
  if (!key->is_ready) {
    Fail(op, Error(Code::kNotFound, "no such key; init it first"));
    return true;
  }
  if (kind == Kind::kDelete) {
    if (!CanJoin(*key)) return false;
    StartDelete(id, key, op);
    return true;
  }
  MakePlaces(id, key);
  if (key->must_join) {
    if (CanJoin(*key)) StartJoin(id, key);
    return false;
  }
  if (IsPush(kind)) return TryPush(id, key, op);
  StartPulls(id, key, op);
  return true;
}

// Whether no answer is under way that could be taken for another one.
bool Client::CanJoin(const KeyState& key) {
  return key.pulls == 0 && key.pushes == 0 && key.join_phase == 0 && key.join_left == 0;
}

void Client::MakePlaces(const KeyId& id, KeyState* key) {
  if (!key->chunks.empty()) return;
  if (epoch_.placement.servers == 0) return;
  key->chunks.resize(key->meta.chunk_count());
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    key->chunks[c].server = ServerOf(epoch_.placement, id, c);
  }
}

// ---- push and pull ------------------------------------------------------------------------------

bool Client::TryPush(const KeyId& id, KeyState* key, Op* op) {
  const bool is_barrier = key->is_barrier;
  if (!is_barrier && !controls_.empty() && controls_.front() < op->id) return false;
  if (is_barrier && !pushes_.empty() && pushes_.front() < op->id) return false;
  if (key->pulls > 0) return false;  // C3
  const uint64_t round = key->round + 1;
  const bool is_sync = key->meta.mode == KeyMeta::Mode::kSync;
  if (is_sync && round > key->meta.staleness + 1) {  // C2
    const uint64_t follows = round - 1 - key->meta.staleness;
    bool known = true;
    for (uint32_t c = 0; c < key->chunks.size(); ++c) {
      if (key->chunks[c].version >= follows) continue;
      known = false;
      Ask(id, key, c, follows);
    }
    if (!known) return false;
  }
  for (const ChunkPlace& place : key->chunks) {
    if (const auto& dead = sessions_[place.server].dead) {
      Fail(op, *dead);
      return true;
    }
  }
  if (const auto error = codec::Cut(key->meta, &op->what.value)) {
    Fail(op, *error);
    return true;
  }
  key->round = round;  // C1: from here on the push has a round
  op->round = round;
  op->has_left = true;
  const bool exact = key->meta.exact_reads();
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    Outgoing push;
    push.op = op->id;
    push.priority = op->what.priority;
    Message& message = push.message;
    message.type = Type::kPush;
    message.key = id;
    message.chunk = c;
    message.dtype = key->meta.dtype;
    message.number = round;
    if (is_barrier) message.flags |= kBarrierKey;
    if (op->what.scalars) {
      message.flags |= kHasScalars;
      message.extra = EncodeScalars(*op->what.scalars);
    }
    message.encoding = op->what.value.encoding;
    message.param = op->what.value.param;
    message.body = op->what.value.Part(c);
    ++key->pushes;
    ++key->chunks[c].queued_pushes;
    ++op->unaccepted;
    Queue(key->chunks[c].server, std::move(push));
    if (op->what.kind != Kind::kPush) {
      QueuePull(id, key, op, c, exact || is_barrier ? round : 0, is_barrier);
    }
  }
  return true;
}

void Client::Ask(const KeyId& id, KeyState* key, uint32_t chunk, uint64_t version) {
  ChunkPlace& place = key->chunks[chunk];
  if (place.asked) return;
  place.asked = true;
  ++key->pulls;
  Outgoing ask;
  ask.purpose = Purpose::kReady;
  ask.message.type = Type::kPull;
  ask.message.flags = kNoBody;
  ask.message.key = id;
  ask.message.chunk = chunk;
  ask.message.number = version;
  Queue(place.server, std::move(ask));
}

void Client::StartPulls(const KeyId& id, KeyState* key, Op* op) {
  for (const ChunkPlace& place : key->chunks) {
    if (const auto& dead = sessions_[place.server].dead) return Fail(op, *dead);
  }
  op->has_left = true;
  op->versions.assign(key->chunks.size(), 0);
  const bool no_body = op->what.kind == Kind::kWait;
  const bool waits_for_round =
      key->meta.mode == KeyMeta::Mode::kSync && (key->meta.exact_reads() || no_body);
  const uint64_t min_version = role_ == Role::kWorker && waits_for_round ? key->round : 0;  // C5
  for (uint32_t c = 0; c < key->chunks.size(); ++c) QueuePull(id, key, op, c, min_version, no_body);
}

void Client::QueuePull(const KeyId& id, KeyState* key, Op* op, uint32_t chunk, uint64_t min_version,
                       bool no_body) {
  if (op->versions.empty()) op->versions.assign(key->chunks.size(), 0);
  Outgoing pull;
  pull.op = op->id;
  pull.priority = op->what.priority;
  pull.pull_bytes = no_body ? 0 : codec::DenseRange(key->meta, chunk).size;
  pull.message.type = Type::kPull;
  if (no_body) pull.message.flags = kNoBody;
  pull.message.key = id;
  pull.message.chunk = chunk;
  pull.message.dtype = key->meta.dtype;
  pull.message.number = min_version;
  ++key->pulls;
  ++op->unpulled;
  Queue(key->chunks[chunk].server, std::move(pull));
}

// ---- init, delete -------------------------------------------------------------------------------

void Client::StartInit(const KeyId& id, KeyState* key, Op* op) {
  op->has_left = true;
  if (key->is_ready) return Finish(op);  // an open of a key that is known
  key->opening = op->id;
  if (op->what.meta != nullptr) key->meta = *op->what.meta;
  key->meta.name = op->what.key;
  key->meta.birth = (welcome_.incarnation << 32) + ++birth_count_;
  const bool creates = op->what.kind == Kind::kInit && welcome_.rank == 0;
  if (creates) {
    if (const auto error = codec::Cut(key->meta, &op->what.value)) return Fail(op, *error);
  }
  if (creates && !welcome_.rejoined) {
    MakePlaces(id, key);
    op->phase = 1;
    return QueueInits(id, key, op);
  }
  Outgoing describe;
  describe.op = op->id;
  describe.message.type = Type::kDescribe;
  describe.message.key = id;
  if (creates) describe.message.flags = kNoWait;
  op->unpulled = 1;
  Queue(ServerOf(epoch_.placement, id, 0), std::move(describe));
}

// Phase 1: all chunks but the first; phase 2: the first, with which the key appears.
void Client::QueueInits(const KeyId& id, KeyState* key, Op* op) {
  if (op->phase == 1 && key->chunks.size() == 1) op->phase = 2;
  const uint32_t begin = op->phase == 1 ? 1 : 0;
  const uint32_t end = op->phase == 1 ? static_cast<uint32_t>(key->chunks.size()) : 1;
  for (uint32_t c = begin; c < end; ++c) {
    Outgoing init;
    init.op = op->id;
    init.message.type = Type::kInit;
    init.message.key = id;
    init.message.chunk = c;
    init.message.dtype = key->meta.dtype;
    if (welcome_.rejoined || key->was_tried) init.message.flags = kOverwrite;
    init.message.extra = Encode(key->meta);
    init.message.body = op->what.value.Part(c);
    ++op->unaccepted;
    Queue(key->chunks[c].server, std::move(init));
  }
}

void Client::StartDelete(const KeyId& id, KeyState* key, Op* op) {
  op->has_left = true;
  MakePlaces(id, key);
  key->opening = op->id;  // nothing else of this key moves meanwhile
  std::set<uint32_t> servers;
  if (welcome_.rank == 0) {
    for (const ChunkPlace& place : key->chunks) servers.insert(place.server);
  }
  for (const uint32_t server : servers) {
    Outgoing erase;
    erase.op = op->id;
    erase.message.type = Type::kDelete;
    erase.message.key = id;
    ++op->unaccepted;
    Queue(server, std::move(erase));
  }
  if (servers.empty()) {
    Forget(key);
    Finish(op);
  }
}

// All of a key but what still waits for it.
void Client::Forget(KeyState* key) {
  KeyState fresh;
  fresh.queue = std::move(key->queue);
  *key = std::move(fresh);
}

// ---- closing a store ----------------------------------------------------------------------------

// A store is closed on every server when the pushes that were given before are accepted and changes
// of its updater have ended.  What still waits there fails.
void Client::AdvanceCloses() {
  const std::set<OpId> closing = closing_;  // some may end here
  for (const OpId id : closing) {
    Op* const op = Find(id);
    if (op->has_left || IsInUse(op->what.store, id)) continue;
    op->has_left = true;
    FailStore(op->what.store, id);
    for (ServerSession& session : sessions_) {
      if (session.dead) continue;
      Outgoing close;
      close.op = id;
      close.message.type = Type::kClose;
      close.message.chunk = op->what.store;
      ++op->unaccepted;
      Queue(session.server, std::move(close));
    }
    if (op->unaccepted > 0) continue;
    ForgetStore(op->what.store);
    Finish(op);
  }
}

// Whether a push or a change of the updater that was given before has not ended.
bool Client::IsInUse(uint32_t store, OpId close) const {
  const auto is_open = [&](OpId id) {
    const Op* const op = ops_.Find(id);
    if (op == nullptr || id > close) return false;
    if (op->what.kind == Kind::kControl) return op->what.store == store;
    return !op->accepted_told && StoreOf(op->what.key) == store;
  };
  return std::any_of(pushes_.begin(), pushes_.end(), is_open) ||
         std::any_of(controls_.begin(), controls_.end(), is_open);
}

void Client::FailStore(uint32_t store, OpId close) {
  std::vector<OpId> ids;
  ops_.ForEach([&](OpId id, const Op& op) {
    const bool of_key = !op.what.key.empty() && StoreOf(op.what.key) == store;
    const bool is_control = op.what.kind == Kind::kControl && op.what.store == store;
    if (id != close && (of_key || is_control)) ids.push_back(id);
  });
  std::sort(ids.begin(), ids.end());
  const Error error(Code::kCancelled, "the store is closed");
  for (const OpId id : ids) Fail(Find(id), error);
}

void Client::ForgetStore(uint32_t store) {
  const KeyId barrier = IdOf(InternalKey(store, "barrier"));
  barriers_.erase(barrier);
  for (auto at = keys_.begin(); at != keys_.end();) {
    const bool is_its = at->first == barrier ||
                        (!at->second.meta.name.empty() && StoreOf(at->second.meta.name) == store);
    at = is_its ? keys_.erase(at) : std::next(at);
  }
}

// ---- joining a key after a new life -------------------------------------------------------------

void Client::StartJoin(const KeyId& id, KeyState* key) {
  if (key->meta.mode == KeyMeta::Mode::kAsync) {  // there are no rounds to join
    key->must_join = false;
    Wake(id);
    if (Op* const op = Find(key->opening)) Finish(op);
    return;
  }
  key->join_phase = 1;
  key->join_round = 0;
  NextJoinPhase(id, key);
}

// 1: STATUS of every chunk.  2: ABSTAIN from the rounds that an earlier life may have pushed in,
// also where it has pushed in none: a CONTROL that waits for the place in this key learns it from
// that. 3: wait until those rounds are complete.
void Client::NextJoinPhase(const KeyId& id, KeyState* key) {
  std::set<uint32_t> asked;
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    Outgoing outgoing;
    outgoing.purpose = Purpose::kJoin;
    Message& message = outgoing.message;
    message.key = id;
    message.chunk = c;
    message.number = key->join_round;
    if (key->join_phase == 1) {
      message.type = Type::kStatus;
      message.number = 0;
    } else if (key->join_phase == 2) {
      if (!asked.insert(key->chunks[c].server).second) continue;
      message.type = Type::kAbstain;
    } else {
      message.type = Type::kPull;
      message.flags = kNoBody;
    }
    ++key->join_left;
    Queue(key->chunks[c].server, std::move(outgoing));
  }
}

void Client::FailJoin(KeyState* key, const Error& error) {
  key->join_phase = 0;
  if (Op* const op = Find(key->opening)) {
    key->opening = kNoOp;
    return Fail(op, error);
  }
  Op* const control = controls_.empty() ? nullptr : Find(controls_.front());
  if (control != nullptr && control->phase == 0) Fail(control, error);
  FailFront(key, error);
}

// The operation that waits first in the key's queue.
void Client::FailFront(KeyState* key, const Error& error) {
  for (const OpId id : key->queue) {
    Op* const op = Find(id);
    if (op == nullptr || op->has_left) continue;
    Wake(op->key);
    return Fail(op, error);
  }
}

// ---- control ------------------------------------------------------------------------------------

// Phase 0: not begun.  1: CONTROL to all servers.  2: COMMIT to the head.  3: WITHDRAW.
void Client::AdvanceControl(Effects* effects) {
  while (!controls_.empty()) {
    Op* const op = Find(controls_.front());
    if (op == nullptr) {
      controls_.pop_front();
      WakeAll();
      continue;
    }
    if (op->phase == 0) {
      if (!KnowsItsPlaces(*op)) return;
      op->has_left = true;
      op->phase = 1;
      op->generation = ++generation_;
      QueueControl(op, Type::kControl);
    }
    if (op->unaccepted > 0) return;
    if (op->phase == 1 && op->error) {
      op->phase = 3;
      QueueControl(op, Type::kWithdraw);
      if (op->unaccepted > 0) return;
    }
    if (op->phase == 3) {
      Fail(op, *op->error);
      continue;
    }
    if (op->phase == 1) {
      op->phase = 2;
      Message commit;
      commit.type = Type::kCommit;
      commit.number = op->generation;
      commit.seq = op->id;
      effects->to_head.push_back(std::move(commit));
    }
    return;
  }
}

// A CONTROL says from which round on it counts, so the place in every key has to be known, and keys
// whose init was given before it have to be there.  A push of an asynchronous key has no round:
// those that were given before the CONTROL are accepted before it leaves.
bool Client::KnowsItsPlaces(const Op& control) {
  bool known = true;
  for (const KeyId& id : SortedKeys()) {
    KeyState& key = keys_.at(id);
    if (key.is_barrier) continue;
    if (IsInitedBefore(key, control)) known = false;
    if (!key.is_ready || StoreOf(key.meta.name) != control.what.store) continue;
    if (key.meta.mode == KeyMeta::Mode::kAsync) {
      if (key.pushes > 0 || QueuedPushes(key, control.id) > 0) known = false;
      continue;
    }
    if (!key.must_join) continue;
    known = false;
    MakePlaces(id, &key);
    if (CanJoin(key)) StartJoin(id, &key);
  }
  return known;
}

// Whether an init, open or delete of the key is under way or waits that was given before the
// CONTROL.
bool Client::IsInitedBefore(const KeyState& key, const Op& control) const {
  const auto is_one = [&](OpId id) {
    const Op* const op = ops_.Find(id);
    return op != nullptr && id < control.id && StoreOf(op->what.key) == control.what.store &&
           (op->what.kind == Kind::kInit || op->what.kind == Kind::kOpen ||
            op->what.kind == Kind::kDelete);
  };
  return is_one(key.opening) || std::any_of(key.queue.begin(), key.queue.end(), is_one);
}

// Pushes that have no round yet and were given before this operation.
uint64_t Client::QueuedPushes(const KeyState& key, OpId before) const {
  uint64_t count = 0;
  for (const OpId id : key.queue) {
    const Op* const op = ops_.Find(id);
    if (id < before && op != nullptr && !op->has_left && op->what.IsPush()) ++count;
  }
  return count;
}

uint64_t Client::RoundAfter(const std::string& name, OpId op) const {
  const auto key = keys_.find(IdOf(name));
  return key == keys_.end() ? 1 : key->second.round + QueuedPushes(key->second, op) + 1;
}

void Client::QueueControl(Op* op, Type type) {
  const auto servers = static_cast<uint32_t>(sessions_.size());
  std::vector<std::vector<ControlRounds::Item>> rounds(servers);
  for (const KeyId& id : SortedKeys()) {
    const KeyState& key = keys_.at(id);
    if (!key.is_ready || key.is_barrier) continue;
    if (StoreOf(key.meta.name) != op->what.store) continue;
    const uint64_t from_round = key.round + QueuedPushes(key, op->id) + 1;
    if (from_round == 1 && !welcome_.rejoined) continue;
    std::set<uint32_t> holders;
    for (const ChunkPlace& place : key.chunks) holders.insert(place.server);
    for (const uint32_t server : holders) rounds[server].push_back({id, from_round});
  }
  for (uint32_t server = 0; server < servers; ++server) {
    if (type == Type::kWithdraw && sessions_[server].dead) continue;
    Outgoing control;
    control.op = op->id;
    control.message.type = type;
    control.message.number = op->generation;
    if (type == Type::kControl) {
      control.message.chunk = op->what.store;
      // A later life may not have asked yet for keys in which rounds are under way.
      if (welcome_.rejoined) control.message.flags = kWhenJoined;
      control.message.extra = Encode(op->what.spec);
      const size_t bytes = rounds[server].size() * sizeof(ControlRounds::Item);
      if (bytes > 0) {
        auto items = std::make_shared<std::vector<ControlRounds::Item>>(std::move(rounds[server]));
        control.message.body = {reinterpret_cast<const std::byte*>(items->data()), bytes, items};
      }
    }
    ++op->unaccepted;
    Queue(server, std::move(control));
  }
}

// ---- ends ---------------------------------------------------------------------------------------

void Client::FinishIfDone(Op* op) {
  if (IsPush(op->what.kind) && op->has_left && op->unaccepted == 0 && !op->accepted_told) {
    op->accepted_told = true;
    outcomes_.push_back({op->id, Outcome::Event::kAccepted, std::nullopt, op->round, nullptr});
    ForgetPushes();
  }
  if (op->unaccepted > 0 || op->unpulled > 0) return;
  if (op->cancelled) return Fail(op, TimeoutOf(*op));
  Finish(op);
}

void Client::Finish(Op* op) {
  op->wait.ForNothing(now_, &waits_);
  Outcome outcome{op->id, Outcome::Event::kDone, std::nullopt, op->round, nullptr};
  if (!op->versions.empty() && op->what.kind != Kind::kPush) {
    outcome.round = *std::max_element(op->versions.begin(), op->versions.end());
  }
  if (const auto key = keys_.find(op->key); key != keys_.end()) {
    const bool tells_meta = op->what.kind == Kind::kInit || op->what.kind == Kind::kOpen;
    if (tells_meta) outcome.meta = std::make_shared<const KeyMeta>(key->second.meta);
    if (key->second.opening == op->id) key->second.opening = kNoOp;
    Wake(op->key);
  }
  outcomes_.push_back(std::move(outcome));
  leaving_.erase(op->id);
  closing_.erase(op->id);
  ops_.Erase(op->id);
}

// The key's queue forgets the operation when it comes to it.  What it has pushed goes on without
// its user: the round counts on it, and other chunks of it may have arrived.
void Client::Fail(Op* op, const Error& error) {
  const OpId id = op->id;
  op->wait.ForNothing(now_, &waits_);
  OwnBodies(*op);
  outcomes_.push_back({id, Outcome::Event::kFailed, Prefixed(*op, error), op->round, nullptr});
  if (op->unpulled > 0) CancelPulls(op, kNoOp);
  if (const auto key = keys_.find(op->key); key != keys_.end()) {
    KeyState& state = key->second;
    if (state.opening == id) {
      state.opening = kNoOp;
      state.was_tried = state.was_tried || op->phase > 0;
      state.chunks.clear();
    }
    Wake(op->key);
  }
  leaving_.erase(id);
  closing_.erase(id);
  ops_.Erase(id);
  ForgetPushes();
}

void Client::FailAll(const Error& error) {
  std::vector<OpId> ids;
  ids.reserve(ops_.size());
  ops_.ForEach([&](OpId id, const Op&) { ids.push_back(id); });
  std::sort(ids.begin(), ids.end());
  for (ServerSession& session : sessions_) session.Forget();  // nothing leaves any more
  for (const OpId id : ids) Fail(Find(id), error);
  ready_.clear();
  pump_.clear();
  for (ServerSession& session : sessions_) session.is_to_pump = false;
  controls_.clear();
}

uint64_t Client::RoundOf(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  return key == keys_.end() ? 0 : key->second.round;
}

bool Client::HasPlace(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  return key != keys_.end() && key->second.is_ready && !key->second.must_join;
}

bool Client::IsSender() const {
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    const Epoch::State state = epoch_.workers[static_cast<size_t>(rank)].state;
    if (state == Epoch::State::kAlive || state == Epoch::State::kAwaited) {
      return rank == welcome_.rank;
    }
  }
  return false;
}

}  // namespace tkv
