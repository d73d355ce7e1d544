#include "client/announcer.h"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

namespace tkv {
namespace {

using Phase = Announcement::Phase;

}  // namespace

void Announcer::Advance(Effects* effects) {
  while (Announcement* const change = core_.announcements.front()) {
    if (change->is_over) {
      core_.announcements.Pop();
      core_.keys.WakeAll();
      continue;
    }
    Op* const op = core_.ops.Find(change->op);
    if (change->phase == Phase::kWaiting) {
      const OpId id = op->id;
      if (!MayStart(*change)) {
        if (core_.announcements.front()->op != id)
          continue;  // MayStart has put a repetition before it
        return;
      }
      ListKeys(change);
      op->has_started = true;
      change->phase = Phase::kSending;
      change->generation = core_.announcements.NewGeneration();
      QueueControl(op, *change, Type::kControl);
    }
    if (op->unaccepted > 0) return;
    if (change->phase == Phase::kSending && change->error) {
      Withdraw(op, *change->error);
      if (op->unaccepted > 0) return;
    }
    if (change->phase == Phase::kWithdrawing) {
      core_.Fail(op, *change->error);
      continue;
    }
    if (change->phase == Phase::kSending) {
      change->phase = Phase::kCommitting;
      Message commit;
      commit.type = Type::kCommit;
      commit.number = change->generation;
      commit.seq = op->id;
      core_.head.Send(std::move(commit), effects);
    }
    return;
  }
}

void Announcer::OnAnswer(Op* op, const Message& reply) {
  Announcement* const change = core_.announcements.Find(op->id);
  if (reply.type == Type::kError && !change->error) change->error = ErrorOf(reply);
}

void Announcer::Withdraw(Op* control, const Error& error) {
  core_.head.End(control->id);
  Announcement* const change = core_.announcements.Find(control->id);
  change->error = error;
  change->phase = Phase::kWithdrawing;
  QueueControl(control, *change, Type::kWithdraw);
}

bool Announcer::WithdrawIfSent(Op* op, const Error& error) {
  const Announcement* const change = core_.announcements.Find(op->id);
  if (change == nullptr || !change->has_started()) return false;
  core_.ReportFailure(op, error);
  if (change->phase == Phase::kWithdrawing) return true;
  op->deadline = core_.now + core_.options.server_patience;
  Withdraw(op, error);
  return true;
}

bool Announcer::MayStart(const Announcement& change) {
  if (!change.is_repeat) return KnowsItsRounds(change);
  return !core_.keys.Any(
      [&](const ClientKey& key) { return key.store() == change.store && IsBeingMade(key); });
}

// Returns true if the CONTROL can name the first round for which it is valid, in every key of its
// store.  The current round of each key has to be known, and every earlier init has to be done.
// Pushes of an asynchronous key have no round, so all earlier ones have to be accepted.  Starts the
// work that is missing.
bool Announcer::KnowsItsRounds(const Announcement& change) {
  const uint32_t store = change.store;
  const OpId control = change.op;  // Repeat may move `change`
  bool known = true;
  for (const KeyId& id : core_.keys.Sorted()) {
    ClientKey& key = core_.keys.At(id);
    if (key.is_barrier) continue;
    if (IsInitedBefore(key, control, store)) known = false;
    if (!key.is_ready || key.store() != store) continue;
    if (!key.is_sync()) {
      if (key.pushes > 0 || core_.QueuedPushes(key, control) > 0) known = false;
      continue;
    }
    if (core_.LacksRule(key) && core_.QueuedPushes(key, control) > 0 && Repeat(id, key, 0))
      known = false;
    if (!key.must_join) continue;
    known = false;
    core_.PlaceChunks(id, &key);
    if (key.CanJoin()) finder_.Start(id, &key);
  }
  return known;
}

// Returns true if an init, open or delete of the key has not ended that the user gave before the
// CONTROL.
bool Announcer::IsInitedBefore(const ClientKey& key, OpId control, uint32_t store) const {
  const auto is_one = [&](OpId id) {
    const Op* const op = core_.ops.Find(id);
    return op != nullptr && id < control && StoreOf(op->operation.key) == store &&
           op->operation.Is<Operation::Init, Operation::Open, Operation::Delete>();
  };
  return is_one(key.opening) || std::any_of(key.queue.begin(), key.queue.end(), is_one);
}

bool Announcer::IsBeingMade(const ClientKey& key) const {
  const Op* const op = core_.ops.Find(key.opening);
  return op != nullptr && op->creating != Op::Creating::kNone;
}

// Fills in the keys of a CONTROL, each with the first round for which it is valid.  A repeated
// CONTROL lists only keys that lack the rule.
void Announcer::ListKeys(Announcement* change) const {
  for (const KeyId& id : core_.keys.Sorted()) {
    const ClientKey& key = core_.keys.At(id);
    if (!key.is_ready || key.is_barrier || key.must_join) continue;
    if (key.store() != change->store) continue;
    if (change->is_repeat && !core_.LacksRule(key)) continue;
    // The pushes that wait for a repeated CONTROL came after the original one.
    const uint64_t before = change->is_repeat ? 0 : core_.QueuedPushes(key, change->op);
    // Repeated pushes belong to rounds that some chunks have updated already.
    const uint64_t from_round = std::max(key.round + before, key.repeats_to) + 1;
    if (from_round > 1 || core_.members.welcome.rejoined)
      change->listed.push_back({id, from_round});
  }
}

void Announcer::QueueControl(Op* op, const Announcement& change, Type type) {
  const auto servers = static_cast<uint32_t>(core_.links.size());
  std::vector<std::vector<ControlRounds::Item>> rounds(servers);
  for (const ControlRounds::Item& item : change.listed) {
    const ClientKey* const key = core_.keys.Find(item.key);
    if (type != Type::kControl || key == nullptr) continue;
    std::set<uint32_t> holders;
    for (const KnownChunk& known : key->chunks) holders.insert(known.server);
    for (const uint32_t server : holders) rounds[server].push_back(item);
  }
  for (uint32_t server = 0; server < servers; ++server) {
    if (type == Type::kWithdraw && core_.links[server].dead()) continue;
    Outgoing control;
    control.op = op->id;
    control.message.type = type;
    control.message.number = change.generation;
    if (type == Type::kControl) {
      control.message.chunk = op->operation.store;
      // A later life may not know yet all keys in which rounds are under way.
      if (core_.members.welcome.rejoined) control.message.flags = kOnlyListed;
      control.message.extra = Encode(op->operation.As<Operation::Control>()->spec);
      const size_t bytes = rounds[server].size() * sizeof(ControlRounds::Item);
      if (bytes > 0) {
        auto items = std::make_shared<std::vector<ControlRounds::Item>>(std::move(rounds[server]));
        control.message.body = {reinterpret_cast<const std::byte*>(items->data()), bytes, items};
      }
    }
    ++op->unaccepted;
    core_.Queue(server, std::move(control));
  }
}

bool Announcer::Repeat(const KeyId& id, const ClientKey& key, Time patience) {
  const uint32_t store = key.store();
  if (!core_.members.IsSender()) {
    core_.announcements.ForgetLast(store);
    return false;
  }
  if (core_.announcements.IsRepeated(store, id)) return true;
  const Announcements::Last& last = *core_.announcements.LastOf(store);
  Operation operation;
  operation.verb = last.verb;
  operation.request = Operation::Control{last.spec};
  operation.store = store;
  operation.patience = patience;
  const Op& op = core_.Add(std::move(operation), core_.now);
  core_.announcements.AddRepeat(op.id, store);
  return true;
}

std::optional<uint64_t> Announcer::CountsFrom(const std::string& name) const {
  const Announcement* const change = core_.announcements.front();
  const ClientKey* const key = core_.keys.Find(name);
  if (change != nullptr) {
    for (const ControlRounds::Item& item : change->listed) {
      if (item.key == IdOf(name)) return item.from_round;
    }
  }
  const bool is_async = key != nullptr && key->meta.mode == KeyMeta::Mode::kAsync;
  if (core_.members.welcome.rejoined && !is_async) return std::nullopt;
  return 1;
}

}  // namespace tkv
