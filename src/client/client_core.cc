#include "client/client_core.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"

namespace tkv {
namespace {

Bytes CopyOf(const Bytes& bytes) {
  const auto copy = std::make_shared<std::vector<std::byte>>(bytes.data, bytes.data + bytes.size);
  return {copy->data(), bytes.size, copy};
}

}  // namespace

bool BlocksNextPush(const Message& message) {
  return message.type == Type::kPull && (message.flags & kOfCut) == 0;
}

bool HasRound(const Operation& operation) {
  return operation.Is<Operation::Push, Operation::PushPull, Operation::Barrier>();
}

Error StoreIsClosed() { return {Code::kCancelled, "the store is closed"}; }

// ---- messages to servers ------------------------------------------------------------------------

void ClientCore::Queue(uint32_t server, Outgoing outgoing) {
  links[server].Queue(std::move(outgoing), this);
  Pump(&links[server]);
}

std::vector<uint32_t> ClientCore::TakePumped() {
  std::vector<uint32_t> servers = std::exchange(pump_, {});
  std::sort(servers.begin(), servers.end());
  return servers;
}

ServerLink* ClientCore::LinkOf(LinkId id) {
  for (ServerLink& link : links) {
    if (link.link() == id && id != kNoLink) return &link;
  }
  return nullptr;
}

void ClientCore::PlaceChunks(const KeyId& id, ClientKey* key) const {
  if (!key->chunks.empty()) return;
  if (members.epoch.placement.servers == 0) return;
  key->chunks.resize(key->meta.chunk_count());
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    key->chunks[c].server = ServerOf(members.epoch.placement, id, c);
  }
}

KnownChunks::Found ClientCore::ChunkOf(const KeyId& id, uint32_t chunk) {
  ClientKey* const key = keys.Find(id);
  if (key == nullptr || chunk >= key->chunks.size()) return {};
  return {&key->chunks[chunk], &key->meta};
}

void ClientCore::AskFor(const KeyId& id, uint32_t chunk, uint64_t version) {
  ClientKey& key = keys.At(id);
  KnownChunk& known = key.chunks[chunk];
  if (known.asked) return;
  known.asked = true;
  ++key.pulls;
  Outgoing ask;
  ask.purpose = Purpose::kReady;
  ask.message.type = Type::kPull;
  ask.message.flags = kNoBody | kAnyway;
  ask.message.key = id;
  ask.message.chunk = chunk;
  ask.message.number = version;
  Queue(known.server, std::move(ask));
}

void ClientCore::EndAsk(const Message& ask, uint32_t server) {
  links[server].ReleasePulls(ask.key, ask.chunk);
  if (KnownChunk* const known = ChunkOf(ask.key, ask.chunk).chunk) known->asked = false;
}

// ---- the end of operations ---------------------------------------------------------------------

Op& ClientCore::Add(Operation operation, Time begin) {
  Op& op = ops.Add(std::move(operation), begin);
  Rearm(op.NextTime());
  return op;
}

void ClientCore::FinishIfDone(Op* op) {
  if (HasRound(op->operation) && op->has_started && op->unaccepted == 0 && !op->is_accepted) {
    op->is_accepted = true;
    outcomes.push_back({op->id, Outcome::Event::kAccepted, std::nullopt, op->round, {}});
    ForgetPushes();
  }
  if (op->unaccepted > 0 || op->unpulled > 0) return;
  if (op->cancelled) return Fail(op, TimeoutOf(*op));
  Finish(op);
}

void ClientCore::Finish(Op* op) {
  op->wait.ForNothing(now, &waits);
  Outcome outcome{op->id, Outcome::Event::kDone, std::nullopt, op->round, {}};
  if (!op->versions.empty() && !op->operation.Is<Operation::Push>()) {
    outcome.round = *std::max_element(op->versions.begin(), op->versions.end());
  }
  if (members.is_observer() &&
      op->operation.Is<Operation::Pull>()) {  // workers count from the base
    if (const ClientKey* const key = keys.Find(op->key)) outcome.round += key->base;
  }
  if (op->operation.Is<Operation::Stats>()) outcome.result = op->table;
  if (ClientKey* const key = keys.Find(op->key)) {
    const auto meta = [&] { return std::make_shared<const KeyMeta>(key->meta); };
    if (op->operation.Is<Operation::Init, Operation::Open>())
      outcome.result = Outcome::Found{meta()};
    if (op->operation.Is<Operation::Cut>()) {
      auto states = std::make_shared<const std::vector<ChunkState>>(std::move(op->states));
      outcome.result = Outcome::Cut{meta(), std::move(states)};
    }
    if (key->opening == op->id) key->opening = kNoOp;
    keys.Wake(op->key);
  }
  if (op->operation.Is<Operation::Control>()) NoteCommitted(*op);
  if (!IsRepeat(*op)) outcomes.push_back(std::move(outcome));
  Erase(op);
}

void ClientCore::FinishWith(Op* op, Outcome::Result result) {
  outcomes.push_back({op->id, Outcome::Event::kDone, std::nullopt, 0, std::move(result)});
  Erase(op);
}

void ClientCore::Erase(Op* op) {
  head.End(op->id);
  if (op->operation.Is<Operation::Control>()) announcements.End(op->id);
  leaves.erase(op->id);
  newest_epochs.erase(op->id);
  closes.erase(op->id);
  ops.Erase(op);
}

// Ends an operation with an error.  Advance removes it later from the key's queue.  Its pushes are
// still sent: the round needs them, and other chunks of them may have arrived.
void ClientCore::Fail(Op* op, const Error& error) {
  const OpId id = op->id;
  op->wait.ForNothing(now, &waits);
  PrepareToFail({&id, 1});
  const Error told = op->Prefixed(error);
  const bool is_repeat = IsRepeat(*op);
  if (!is_repeat && !op->is_reported) {
    outcomes.push_back({id, Outcome::Event::kFailed, told, op->round, {}});
  }
  if (ClientKey* const key = keys.Find(op->key)) {
    if (key->opening == id) {
      key->opening = kNoOp;
      key->was_tried = key->was_tried || op->creating != Op::Creating::kNone;
      key->search.phase = RoundSearch::Phase::kNone;  // its answers have no chunks any more
      key->chunks.clear();
    }
    keys.Wake(op->key);
  }
  if (is_repeat) FailPushesFor(op->operation.store, told);
  Erase(op);
  ForgetPushes();
}

void ClientCore::FailFirstQueued(ClientKey* key, const Error& error) {
  for (const OpId id : key->queue) {
    Op* const op = ops.Find(id);
    if (op == nullptr || op->has_started) continue;
    keys.Wake(op->key);
    return Fail(op, error);
  }
}

void ClientCore::FailAll(const Error& error) {
  const std::vector<OpId> ids = ops.Where([](const Op&) { return true; });
  for (ServerLink& link : links) link.Forget();  // no message may leave any more
  for (const OpId id : ids) {
    if (Op* const op = ops.Find(id)) Fail(op, error);
  }
  keys.ForgetReady();
  lost_pushes.clear();
  pump_.clear();
  for (ServerLink& link : links) link.Unmark();
  announcements.Clear();
}

void ClientCore::ReportFailure(Op* op, const Error& error) {
  if (std::exchange(op->is_reported, true)) return;
  outcomes.push_back({op->id, Outcome::Event::kFailed, op->Prefixed(error), op->round, {}});
}

// Drops accepted and failed pushes from the front of the list, and wakes the barriers, which wait
// for all earlier pushes.
void ClientCore::ForgetPushes() {
  const size_t count = pushes.size();
  while (!pushes.empty()) {
    const Op* const op = ops.Find(pushes.front());
    if (op != nullptr && !op->is_accepted) break;
    pushes.pop_front();
  }
  if (pushes.size() < count) keys.WakeBarriers();
}

void ClientCore::PrepareToFail(std::span<const OpId> ids) {
  OwnBodies(ids);
  CancelPulls(ids, false);
  for (const OpId id : ids) {
    Op* const op = ops.Find(id);
    if (op == nullptr) continue;
    op->owns_value = true;
    op->unpulled = 0;
  }
}

void ClientCore::Detach(std::span<const OpId> ids) {
  OwnBodies(ids);
  for (const OpId id : ids) {
    Op* const op = ops.Find(id);
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
void ClientCore::OwnBodies(std::span<const OpId> ids) {
  std::vector<OpId> lending;
  for (const OpId id : ids) {
    const Op* const op = ops.Find(id);
    if (op != nullptr && op->LendsValue()) lending.push_back(id);
  }
  if (lending.empty()) return;
  const auto own = [&](Outgoing* outgoing) {
    Bytes& body = outgoing->message.body;
    if (body.size > 0 && std::ranges::binary_search(lending, outgoing->op)) body = CopyOf(body);
  };
  for (ServerLink& link : links) link.ForEachPush(own);
}

void ClientCore::CancelPulls(std::span<const OpId> ids, bool asks) {
  std::vector<OpId> pulling;
  for (const OpId id : ids) {
    const Op* const op = ops.Find(id);
    if (op != nullptr && op->unpulled > 0) pulling.push_back(id);
  }
  if (pulling.empty()) return;
  CancelWhere(
      [&](const Outgoing& outgoing) {
        return outgoing.purpose == Purpose::kOp && std::ranges::binary_search(pulling, outgoing.op);
      },
      asks);
}

void ClientCore::CancelWhere(const std::function<bool(const Outgoing&)>& is_meant, bool asks) {
  for (ServerLink& link : links) {
    const auto parks = [&](const Outgoing& sent) {
      const Type type = sent.message.type;
      return (type == Type::kPull || type == Type::kDescribe) && is_meant(sent);
    };
    for (const uint64_t seq : link.SentWhere(parks)) {
      const Outgoing& sent = *link.FindSent(seq);
      Outgoing cancel;
      cancel.op = asks ? sent.op : kNoOp;
      cancel.purpose = Purpose::kCancel;
      cancel.message.type = Type::kCancel;
      cancel.message.key = sent.message.key;
      cancel.message.chunk = sent.message.chunk;
      cancel.message.number = seq;
      Queue(link.server(), std::move(cancel));
    }
    std::vector<Message> asked;
    link.EraseQueued([&](const Outgoing& waiting) {
      if (IsMutating(waiting.message.type) || !is_meant(waiting)) return false;
      if (Op* const op = ops.Find(waiting.op)) {
        Drop(&op->unpulled);
        op->cancelled = true;
      }
      ClientKey* const key = keys.Find(waiting.message.key);
      if (key != nullptr && BlocksNextPush(waiting.message)) Drop(&key->pulls);
      if (waiting.purpose == Purpose::kReady) asked.push_back(waiting.message);
      return true;
    });
    for (const Message& ask : asked) EndAsk(ask, link.server());
  }
}

Error ClientCore::TimeoutOf(const Op& op) const {
  const ClientKey* const key = keys.Find(op.key);
  std::string round;
  if (key != nullptr && !op.missing.empty()) {
    uint64_t number = op.round > 0 ? op.round : key->round;
    // An observer waits until all chunks have the newest version of any.
    if (members.is_observer() && !op.versions.empty()) {
      number = *std::max_element(op.versions.begin(), op.versions.end());
    }
    round = Format(", round {}", key->base + number);
  }
  std::string who = Awaited(op);
  if (!op.missing.empty()) {
    who.clear();
    for (const Rank rank : op.missing) {
      who += Format("{}worker {} ({})", who.empty() ? "" : ", ", rank,
                    Name(members.epoch.StateOf(rank)));
    }
  }
  return {Code::kDeadlineExceeded,
          Format("waited {:.1f} s for {}{}", Seconds(now - op.begin), who, round)};
}

std::string ClientCore::Awaited(const Op& op) const {
  std::string text;
  for (const Rank rank : op.missing) {
    if (!text.empty()) text += ", ";
    text += Format("worker {}", rank);
    const Epoch::State state = members.epoch.StateOf(rank);
    if (state != Epoch::State::kAlive)
      text += Format(" ({})", state == Epoch::State::kAwaited ? "not yet joined" : Name(state));
  }
  if (!text.empty()) return text;
  for (const ServerLink& link : links) {
    if (link.busy() && link.state() != ServerLink::State::kOpen) {
      return Format("server {}", link.server());
    }
  }
  if (op.operation.Is<Operation::Leave, Operation::NewestEpoch>() || head.Has(op.id))
    return "the head";
  if (op.operation.Is<Operation::Init>()) {
    const bool has_heirs = members.epoch.policy == Epoch::Policy::kContinue;
    return has_heirs ? "the worker that creates the key" : "worker 0";
  }
  return "a server";
}

uint64_t ClientCore::QueuedPushes(const ClientKey& key, OpId before) const {
  uint64_t count = 0;
  for (const OpId id : key.queue) {
    const Op* const op = ops.Find(id);
    if (id < before && op != nullptr && !op->has_started && op->operation.push() != nullptr)
      ++count;
  }
  return count;
}

// ---- changes of the updater --------------------------------------------------------------------

bool ClientCore::LacksRule(const ClientKey& key) const {
  if (!members.welcome.rejoined || key.is_barrier || key.meta.mode == KeyMeta::Mode::kAsync)
    return false;
  const Announcements::Last* const last = announcements.LastOf(key.store());
  return last != nullptr && key.listed_in < last->generation;
}

bool ClientCore::IsRepeat(const Op& op) const {
  if (!op.operation.Is<Operation::Control>()) return false;
  const Announcement* const change = announcements.Find(op.id);
  return change != nullptr && change->is_repeat;
}

void ClientCore::FailPushesFor(uint32_t store, const Error& error) {
  std::vector<OpId> waiting;
  for (const KeyId& id : keys.Sorted()) {
    const ClientKey& key = keys.At(id);
    if (!key.is_ready || key.must_join || key.store() != store) continue;
    if (!LacksRule(key)) continue;
    const auto first = std::find_if(key.queue.begin(), key.queue.end(), [&](OpId op) {
      return ops.Find(op) != nullptr && !ops.Find(op)->has_started;
    });
    if (first != key.queue.end() && ops.Find(*first)->operation.push() != nullptr)
      waiting.push_back(*first);
  }
  for (const OpId push : waiting) {
    if (Op* const op = ops.Find(push)) Fail(op, error);
  }
}

void ClientCore::NoteCommitted(const Op& control) {
  if (!members.welcome.rejoined) return;
  const Announcement& change = *announcements.Find(control.id);
  for (const ControlRounds::Item& item : change.listed) {
    if (ClientKey* const key = keys.Find(item.key)) key->listed_in = change.generation;
  }
  if (change.is_repeat) return;
  announcements.SetLast(change.store, {change.generation, control.operation.verb,
                                       control.operation.As<Operation::Control>()->spec});
}

}  // namespace tkv
