#include "client/waits.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "base/logfmt.h"

namespace tkv {

void Waits::Tick(Time now, Effects* effects) {
  const std::vector<OpId> due = core_.ops.TakeDue(now);
  std::vector<OpId> late,
      has_started;  // in one pass for all: a call of many keys expires as a whole
  for (const OpId id : due) {
    const Op& op = *core_.ops.Find(id);
    if (op.expired || op.deadline > now) continue;
    late.push_back(id);
    if (op.has_started) has_started.push_back(id);
  }
  core_.OwnBodies(late);
  for (const OpId id : late) {
    Op& op = *core_.ops.Find(id);
    if (!op.operation.Is<Operation::Init>())
      op.owns_value = true;  // an init may still send parts of its value
  }
  core_.CancelPulls(has_started, true);  // the answers name the missing workers
  for (const OpId id : due) {
    if (Op* const op = core_.ops.Find(id)) TickOp(op, now, effects);
    if (const Op* const op = core_.ops.Find(id)) {
      core_.ops.SetTimer(*op);
      core_.Rearm(op->NextTime());
    }
  }
}

void Waits::TickOp(Op* op, Time now, Effects* effects) {
  if (op->expired) {
    if (op->grace <= now) core_.Fail(op, core_.TimeoutOf(*op));
    return;
  }
  if (op->deadline <= now) return Expire(op, now);
  if (op->next_notice > now) return;
  op->notice_step = std::min(op->next_notice - op->begin, core_.options.notice_step_max);
  op->next_notice += op->notice_step;
  if (!core_.ops.IsOldestOfVerb(*op)) return;  // the oldest has the notice for all
  if (!AskForMissing(op)) LogWait(*op, 0, effects);
}

// Asks a server that owes the operation an answer which workers are missing.  Returns false if
// there is no such server.
bool Waits::AskForMissing(Op* op) {
  const auto is_open = [&](uint32_t server) {
    return core_.links[server].state() == ServerLink::State::kOpen;
  };
  if (!op->has_started) {  // the operation waits for a version that its key has asked for
    const ClientKey* const key = core_.keys.Find(op->key);
    if (key == nullptr) return false;
    const auto& chunks = key->chunks;
    for (uint32_t c = 0; c < chunks.size(); ++c) {
      if (chunks[c].asked && is_open(chunks[c].server)) {
        AskForMissing(*op, chunks[c].server, c);
        return true;
      }
    }
    return false;
  }
  const auto is_awaited = [&](const Outgoing& sent) {
    return sent.op == op->id && sent.message.type == Type::kPull;
  };
  for (const ServerLink& link : core_.links) {
    if (!is_open(link.server())) continue;
    const Outgoing* const sent = link.FindSentWhere(is_awaited);
    if (sent == nullptr) continue;
    AskForMissing(*op, link.server(), sent->message.chunk);
    return true;
  }
  return false;
}

void Waits::AskForMissing(const Op& op, uint32_t server, uint32_t chunk) {
  Outgoing ask;
  ask.op = op.id;
  ask.purpose = Purpose::kStatus;
  ask.message.type = Type::kStatus;
  ask.message.key = op.key;
  ask.message.chunk = chunk;
  core_.Queue(server, std::move(ask));
}

void Waits::OnCancelAnswer(const Outgoing& sent, uint32_t server, const Message& reply) {
  Op* const op = core_.ops.Find(sent.op);
  if (op != nullptr && reply.type == Type::kOk && !reply.extra.empty()) {
    const ChunkStatus status = DecodeChunkStatus(reply.extra);
    if (op->missing.empty()) op->missing = status.missing;
  }
  const std::optional<Outgoing> pull = core_.links[server].Take(sent.message.number);
  if (!pull) return;
  if (pull->purpose == Purpose::kReady) core_.EndAsk(pull->message, server);
  if (BlocksNextPush(pull->message)) {
    if (ClientKey* const key = core_.keys.Find(pull->message.key)) {
      Drop(&key->pulls);
      core_.keys.Wake(pull->message.key);
    }
  }
  if (op == nullptr) return;
  Drop(&op->unpulled);
  op->cancelled = true;
  if (op->unpulled == 0) core_.Fail(op, core_.TimeoutOf(*op));
}

void Waits::OnMissingAnswer(const Outgoing& sent, const Message& reply, Effects* effects) {
  Op* const op = core_.ops.Find(sent.op);
  if (op == nullptr) return;
  uint64_t round = reply.number + 1;
  if (reply.type == Type::kStatusReply) {
    ChunkStatus status = DecodeChunkStatus(reply.extra);
    op->missing = std::move(status.missing);
    round += status.base;
  }
  if (op->expired) return core_.Fail(op, core_.TimeoutOf(*op));
  LogWait(*op, round, effects);
}

void Waits::Expire(Op* op, Time now) {
  using Phase = Announcement::Phase;
  const Announcement* const change = core_.announcements.Find(op->id);
  if (change != nullptr && change->has_started() && change->phase != Phase::kWithdrawing) {
    op->deadline = now + core_.options.server_patience;  // the CONTROL is taken back first
    return announcer_.Withdraw(op, core_.TimeoutOf(*op));
  }
  core_.ops.LeaveVerb(op);
  op->expired = true;
  op->grace = now + core_.options.answer_grace;
  if (op->has_started && op->unpulled > 0) return;  // answers to its CANCELs name missing workers
  if (!op->has_started && AskForMissing(op)) return;
  core_.Fail(op, core_.TimeoutOf(*op));
}

// Logs a notice that names the waiting operation and the worker or server that it waits for.
//   round  0: none
void Waits::LogWait(const Op& op, uint64_t round, Effects* effects) const {
  const double waited = static_cast<double>(core_.now - op.begin) / kSecond;
  const std::string who = core_.Awaited(op);
  Fields fields;
  fields.Add("standing", Format("{:.1f}s", waited)).Add("verb", op.operation.verb);
  const bool has_key = !op.operation.key.empty() && !op.operation.Is<Operation::Barrier>();
  if (has_key) fields.Add("key", ShownKey(op.operation.key));
  if (round > 0) fields.Add("round", round);
  fields.Add("waits_for", who);
  const auto busy = std::find_if(core_.links.begin(), core_.links.end(),
                                 [](const ServerLink& link) { return link.busy(); });
  if (busy != core_.links.end()) {
    fields.Add("server", busy->server()).Add("link", NameOf(busy->state()));
    if (const auto age = busy->SinceLastWord(core_.now)) {
      fields.Add("last_word", Format("{:.1f}s", static_cast<double>(*age) / kSecond));
    }
  }
  const size_t count = core_.ops.CountOfVerb(op);
  if (count > 1) fields.Add("others", count - 1);
  effects->Log(Level::kWarning,
               Format("still waiting {:.0f} s for {} ({}{}): {}", waited, who, op.Prefix(),
                      round > 0 ? Format(", round {}", round) : "", fields.text()));
}

}  // namespace tkv
