// Changes of the updater: the client announces them to all servers, and the head commits them.

#include <algorithm>

#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

using Phase = Announcement::Phase;

}  // namespace

void Client::AdvanceAnnouncements(Effects* effects) {
  while (Announcement* const change = announcements_.front()) {
    if (change->is_over) {
      announcements_.Pop();
      WakeAll();
      continue;
    }
    Op* const op = Find(change->op);
    if (change->phase == Phase::kWaiting) {
      const OpId id = op->id;
      if (!MayStart(*change)) {
        if (announcements_.front()->op != id) continue;  // MayStart has put a repetition before it
        return;
      }
      ListKeys(change);
      op->has_started = true;
      change->phase = Phase::kSending;
      change->generation = announcements_.NewGeneration();
      QueueControl(op, *change, Type::kControl);
    }
    if (op->unaccepted > 0) return;
    if (change->phase == Phase::kSending && change->error) {
      Withdraw(op, *change->error);
      if (op->unaccepted > 0) return;
    }
    if (change->phase == Phase::kWithdrawing) {
      Fail(op, *change->error);
      continue;
    }
    if (change->phase == Phase::kSending) {
      change->phase = Phase::kCommitting;
      Message commit;
      commit.type = Type::kCommit;
      commit.number = change->generation;
      commit.seq = op->id;
      head_.Send(std::move(commit), effects);
    }
    return;
  }
}

// Takes a CONTROL back from all servers.  The CONTROL fails with this error when they
// have answered.
void Client::Withdraw(Op* control, const Error& error) {
  head_.End(control->id);
  Announcement* const change = announcements_.Find(control->id);
  change->error = error;
  change->phase = Phase::kWithdrawing;
  QueueControl(control, *change, Type::kWithdraw);
}

bool Client::MayStart(const Announcement& change) {
  if (!change.is_repeat) return KnowsItsRounds(change);
  return std::none_of(keys_.begin(), keys_.end(), [&](const auto& entry) {
    return StoreOf(entry.second.meta.name) == change.store && IsBeingMade(entry.second);
  });
}

// Returns true if the CONTROL can name the first round for which it is valid, in every key of its
// store.  The current round of each key has to be known, and every earlier init has to be done.
// Pushes of an asynchronous key have no round, so all earlier ones have to be accepted.  Starts the
// work that is missing.
bool Client::KnowsItsRounds(const Announcement& change) {
  const uint32_t store = change.store;
  const OpId control = change.op;  // RepeatControl may move `change`
  bool known = true;
  for (const KeyId& id : SortedKeys()) {
    KeyState& key = keys_.at(id);
    if (key.is_barrier) continue;
    if (IsInitedBefore(key, control, store)) known = false;
    if (!key.is_ready || StoreOf(key.meta.name) != store) continue;
    if (key.meta.mode == KeyMeta::Mode::kAsync) {
      if (key.pushes > 0 || QueuedPushes(key, control) > 0) known = false;
      continue;
    }
    if (LacksRule(key) && QueuedPushes(key, control) > 0 && RepeatControl(id, key, 0))
      known = false;
    if (!key.must_join) continue;
    known = false;
    PlaceChunks(id, &key);
    if (CanJoin(key)) StartJoin(id, &key);
  }
  return known;
}

// Returns true if an init, open or delete of the key has not ended that the user gave before the
// CONTROL.
bool Client::IsInitedBefore(const KeyState& key, OpId control, uint32_t store) const {
  const auto is_one = [&](OpId id) {
    const Op* const op = ops_.Find(id);
    return op != nullptr && id < control && StoreOf(op->operation.key) == store &&
           op->operation.Is<Operation::Init, Operation::Open, Operation::Delete>();
  };
  return is_one(key.opening) || std::any_of(key.queue.begin(), key.queue.end(), is_one);
}

// Counts the key's pushes that have no round yet and that the user gave before this operation.
uint64_t Client::QueuedPushes(const KeyState& key, OpId before) const {
  uint64_t count = 0;
  for (const OpId id : key.queue) {
    const Op* const op = ops_.Find(id);
    if (id < before && op != nullptr && !op->has_started && op->operation.push() != nullptr)
      ++count;
  }
  return count;
}

uint64_t Client::RoundAfter(const std::string& name, OpId op) const {
  const auto key = keys_.find(IdOf(name));
  return key == keys_.end() ? 1 : key->second.round + QueuedPushes(key->second, op) + 1;
}

// Fills in the keys of a CONTROL, each with the first round for which it is valid.  A repeated
// CONTROL lists only keys that lack the rule.
void Client::ListKeys(Announcement* change) const {
  for (const KeyId& id : SortedKeys()) {
    const KeyState& key = keys_.at(id);
    if (!key.is_ready || key.is_barrier || key.must_join) continue;
    if (StoreOf(key.meta.name) != change->store) continue;
    if (change->is_repeat && !LacksRule(key)) continue;
    // The pushes that wait for a repeated CONTROL came after the original one.
    const uint64_t before = change->is_repeat ? 0 : QueuedPushes(key, change->op);
    // Repeated pushes belong to rounds that some chunks have updated already.
    const uint64_t from_round = std::max(key.round + before, key.repeats_to) + 1;
    if (from_round > 1 || welcome_.rejoined) change->listed.push_back({id, from_round});
  }
}

void Client::QueueControl(Op* op, const Announcement& change, Type type) {
  const auto servers = static_cast<uint32_t>(links_.size());
  std::vector<std::vector<ControlRounds::Item>> rounds(servers);
  for (const ControlRounds::Item& item : change.listed) {
    const auto key = keys_.find(item.key);
    if (type != Type::kControl || key == keys_.end()) continue;
    std::set<uint32_t> holders;
    for (const KnownChunk& known : key->second.chunks) holders.insert(known.server);
    for (const uint32_t server : holders) rounds[server].push_back(item);
  }
  for (uint32_t server = 0; server < servers; ++server) {
    if (type == Type::kWithdraw && links_[server].dead()) continue;
    Outgoing control;
    control.op = op->id;
    control.message.type = type;
    control.message.number = change.generation;
    if (type == Type::kControl) {
      control.message.chunk = op->operation.store;
      // A later life may not know yet all keys in which rounds are under way.
      if (welcome_.rejoined) control.message.flags = kOnlyListed;
      control.message.extra = Encode(op->operation.As<Operation::Control>()->spec);
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

std::optional<uint64_t> Client::ControlCountsFrom(const std::string& name) const {
  const Announcement* const change = announcements_.front();
  const auto key = keys_.find(IdOf(name));
  if (change != nullptr) {
    for (const ControlRounds::Item& item : change->listed) {
      if (item.key == IdOf(name)) return item.from_round;
    }
  }
  const bool is_async = key != keys_.end() && key->second.meta.mode == KeyMeta::Mode::kAsync;
  if (welcome_.rejoined && !is_async) return std::nullopt;
  return 1;
}

// ---- a later life, whose CONTROL lists the keys that it has joined ------------------------------

bool Client::IsBeingMade(const KeyState& key) const {
  const Op* const op = ops_.Find(key.opening);
  return op != nullptr && op->creating != Creating::kNone;
}

bool Client::IsRepeat(const Op& op) const {
  if (!op.operation.Is<Operation::Control>()) return false;
  const Announcement* const change = announcements_.Find(op.id);
  return change != nullptr && change->is_repeat;
}

// Returns true if this later life has changed the updater and the key has not got that change,
// because the life joined the key's rounds afterwards.
bool Client::LacksRule(const KeyState& key) const {
  if (!welcome_.rejoined || key.is_barrier || key.meta.mode == KeyMeta::Mode::kAsync) return false;
  const Announcements::Last* const last = announcements_.LastOf(StoreOf(key.meta.name));
  return last != nullptr && key.listed_in < last->generation;
}

// Repeats the last CONTROL of the key's store, for all keys that lack it, unless a repetition is
// queued.  Returns false if this worker no longer sends the CONTROLs.
bool Client::RepeatControl(const KeyId& id, const KeyState& key, Time patience) {
  const uint32_t store = StoreOf(key.meta.name);
  if (!IsSender()) {
    announcements_.ForgetLast(store);
    return false;
  }
  if (announcements_.IsRepeated(store, id)) return true;
  const Announcements::Last& last = *announcements_.LastOf(store);
  Op& op = ops_.Add(++last_op_);
  op.id = last_op_;
  op.operation.verb = last.verb;
  op.operation.request = Operation::Control{last.spec};
  op.operation.store = store;
  op.key = IdOf(op.operation.key);
  op.begin = now_;
  op.deadline = now_ + (patience > 0 ? patience : options_.patience);
  op.notice_step = options_.first_notice;
  op.next_notice = now_ + options_.first_notice;
  JoinList(&op);
  SetTimer(op);
  announcements_.AddRepeat(op.id, store);
  return true;
}

void Client::FailPushesFor(uint32_t store, const Error& error) {
  std::vector<OpId> pushes;
  for (const KeyId& id : SortedKeys()) {
    const KeyState& key = keys_.at(id);
    if (!key.is_ready || key.must_join || StoreOf(key.meta.name) != store) continue;
    if (!LacksRule(key)) continue;
    const auto first = std::find_if(key.queue.begin(), key.queue.end(), [&](OpId op) {
      return Find(op) != nullptr && !Find(op)->has_started;
    });
    if (first != key.queue.end() && Find(*first)->operation.push() != nullptr)
      pushes.push_back(*first);
  }
  for (const OpId push : pushes) {
    if (Op* const op = Find(push)) Fail(op, error);
  }
}

void Client::NoteCommitted(const Op& control) {
  if (!welcome_.rejoined) return;
  const Announcement& change = *announcements_.Find(control.id);
  for (const ControlRounds::Item& item : change.listed) {
    const auto key = keys_.find(item.key);
    if (key != keys_.end()) key->second.listed_in = change.generation;
  }
  if (change.is_repeat) return;
  announcements_.SetLast(change.store, {change.generation, control.operation.verb,
                                        control.operation.As<Operation::Control>()->spec});
}

}  // namespace tkv
