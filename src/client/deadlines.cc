// Time: deadlines, notices, and the search for the worker or server that an operation waits for.

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

constexpr size_t kEndedTimers = 64;  // entries of ended operations beyond the allowed share

}  // namespace

// Returns true if the next push of the key has to wait for the answer to this message.
bool Client::BlocksNextPush(const Message& message) {
  return message.type == Type::kPull && (message.flags & kOfCut) == 0;
}

// Has Tick handle the operation at its NextTime.  Entries of ended operations stay in the heap
// until they are due or outnumber the others.
void Client::SetTimer(const Op& op) {
  if (timers_.size() > 2 * ops_.size() + kEndedTimers) {
    std::erase_if(timers_, [&](const auto& timer) { return Find(timer.second) == nullptr; });
    std::ranges::make_heap(timers_, std::greater<>());
  }
  timers_.emplace_back(op.NextTime(), op.id);
  std::ranges::push_heap(timers_, std::greater<>());
  Rearm(op.NextTime());
}

OpId Client::PopTimer() {
  std::ranges::pop_heap(timers_, std::greater<>());
  const OpId id = timers_.back().second;
  timers_.pop_back();
  return id;
}

// Removes the timers that are due, and returns their operations in ascending order.
std::vector<OpId> Client::TakeDue(Time now) {
  std::vector<OpId> due;
  while (!timers_.empty() && timers_.front().first <= now) {
    const OpId id = PopTimer();
    if (Find(id) != nullptr) due.push_back(id);
  }
  std::ranges::sort(due);
  return due;
}

void Client::Tick(Time now, Effects* effects) {
  if (now < next_timer_) return;
  now_ = now;
  next_timer_ = kNever;
  if (closed_) return;
  const LinkTurn turn = Turn(now, effects);
  for (ServerLink& link : links_) TickLink(&link, turn);
  const std::vector<OpId> due = TakeDue(now);
  std::vector<OpId> late,
      has_started;  // in one pass for all: a call of many keys expires as a whole
  for (const OpId id : due) {
    const Op& op = *Find(id);
    if (op.expired || op.deadline > now) continue;
    late.push_back(id);
    if (op.has_started) has_started.push_back(id);
  }
  OwnBodies(late);
  for (const OpId id : late) {
    Op& op = *Find(id);
    if (!op.operation.Is<Operation::Init>())
      op.owns_value = true;  // an init may still send parts of its value
  }
  CancelPulls(has_started, true);  // the answers name the missing workers
  for (const OpId id : due) {
    if (Op* const op = Find(id)) TickOp(op, now, effects);
    if (const Op* const op = Find(id)) SetTimer(*op);
  }
  if (head_.OutOfReach(now)) FailRequests(effects);
  Settle(now, effects);
  while (!timers_.empty() && Find(timers_.front().second) == nullptr) PopTimer();
  if (!timers_.empty()) Rearm(timers_.front().first);
  if (head_.is_lost() && !(announcements_.empty() && leaving_.empty() && awaiting_epoch_.empty())) {
    Rearm(std::max(head_.GivesUpAt(), now + kSecond));
  }
  for (const ServerLink& link : links_) link.Rearm(turn);
}

// Ends the operations whose requests no head can answer.
void Client::FailRequests(Effects* effects) {
  const Error error = head_.WhyNone(now_);
  for (const OpId id : head_.Operations()) {
    Op& op = *Find(id);
    if (op.operation.Is<Operation::Control>()) {
      Withdraw(&op, error);
      continue;
    }
    if (op.operation.Is<Operation::Leave>()) {
      effects->Log(Level::kWarning,
                   Format("{}: left without a word to the others: {}", Prefix(op), error.what()));
      has_left_ = true;
    }
    Fail(&op, error);
  }
}

void Client::TickOp(Op* op, Time now, Effects* effects) {
  if (op->expired) {
    if (op->grace <= now) Fail(op, TimeoutOf(*op));
    return;
  }
  if (op->deadline <= now) return Expire(op, now);
  if (op->next_notice > now) return;
  op->notice_step = std::min(op->next_notice - op->begin, options_.notice_step_max);
  op->next_notice += op->notice_step;
  if (verb_lists_[op->entry.verb].oldest != op->id) return;  // the oldest has the notice for all
  if (!AskForMissing(op)) LogWait(*op, 0, effects);
}

// Asks a server that owes the operation an answer which workers are missing.  Returns false if
// there is no such server.
bool Client::AskForMissing(Op* op) {
  const auto ask_of = [&](uint32_t server, uint32_t chunk) {
    Outgoing ask;
    ask.op = op->id;
    ask.purpose = Purpose::kStatus;
    ask.message.type = Type::kStatus;
    ask.message.key = op->key;
    ask.message.chunk = chunk;
    Queue(server, std::move(ask));
    return true;
  };
  const auto is_open = [&](uint32_t server) {
    return links_[server].state() == ServerLink::State::kOpen;
  };
  if (!op->has_started) {  // the operation waits for a version that its key has asked for
    const auto key = keys_.find(op->key);
    if (key == keys_.end()) return false;
    const auto& chunks = key->second.chunks;
    for (uint32_t c = 0; c < chunks.size(); ++c) {
      if (chunks[c].asked && is_open(chunks[c].server)) return ask_of(chunks[c].server, c);
    }
    return false;
  }
  const auto is_awaited = [&](const Outgoing& sent) {
    return sent.op == op->id && sent.message.type == Type::kPull;
  };
  for (const ServerLink& link : links_) {
    if (!is_open(link.server())) continue;
    const Outgoing* const sent = link.FindSentWhere(is_awaited);
    if (sent != nullptr) return ask_of(link.server(), sent->message.chunk);
  }
  return false;
}

// Cancels the matching pulls, in one pass over all messages under way.
//   asks  the operations wait for the answers, which name the missing workers
void Client::CancelWhere(const std::function<bool(const Outgoing&)>& is_meant, bool asks) {
  for (ServerLink& link : links_) {
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
      if (Op* const op = Find(waiting.op)) {
        Drop(&op->unpulled);
        op->cancelled = true;
      }
      const auto key = keys_.find(waiting.message.key);
      if (key != keys_.end() && BlocksNextPush(waiting.message)) Drop(&key->second.pulls);
      if (waiting.purpose == Purpose::kReady) asked.push_back(waiting.message);
      return true;
    });
    for (const Message& ask : asked) EndAsk(ask, link.server());
  }
}

// Cancels the pulls of these operations.
//   ids   ascending
//   asks  the operations wait for the answers, which name the missing workers
void Client::CancelPulls(std::span<const OpId> ids, bool asks) {
  std::vector<OpId> pulling;
  for (const OpId id : ids) {
    const Op* const op = Find(id);
    if (op != nullptr && op->unpulled > 0) pulling.push_back(id);
  }
  if (pulling.empty()) return;
  CancelWhere(
      [&](const Outgoing& outgoing) {
        return outgoing.purpose == Purpose::kOp && std::ranges::binary_search(pulling, outgoing.op);
      },
      asks);
}

void Client::OnCancelAnswer(const Outgoing& sent, uint32_t server, const Message& reply) {
  Op* const op = Find(sent.op);
  if (op != nullptr && reply.type == Type::kOk && !reply.extra.empty()) {
    const ChunkStatus status = DecodeChunkStatus(reply.extra);
    if (op->missing.empty()) op->missing = status.missing;
  }
  const std::optional<Outgoing> pull = links_[server].Take(sent.message.number);
  if (!pull) return;
  if (pull->purpose == Purpose::kReady) EndAsk(pull->message, server);
  if (BlocksNextPush(pull->message)) {
    if (const auto key = keys_.find(pull->message.key); key != keys_.end()) {
      Drop(&key->second.pulls);
      Wake(key->first);
    }
  }
  if (op == nullptr) return;
  Drop(&op->unpulled);
  op->cancelled = true;
  if (op->unpulled == 0) Fail(op, TimeoutOf(*op));
}

// Takes the list of missing workers, for a notice or for the error of a deadline.
void Client::OnMissingAnswer(const Outgoing& sent, const Message& reply, Effects* effects) {
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  uint64_t round = reply.number + 1;
  if (reply.type == Type::kStatusReply) {
    ChunkStatus status = DecodeChunkStatus(reply.extra);
    op->missing = std::move(status.missing);
    round += status.base;
  }
  if (op->expired) return Fail(op, TimeoutOf(*op));
  LogWait(*op, round, effects);
}

void Client::Expire(Op* op, Time now) {
  using Phase = Announcement::Phase;
  const Announcement* const change = announcements_.Find(op->id);
  if (change != nullptr && change->has_started() && change->phase != Phase::kWithdrawing) {
    op->deadline = now + options_.server_patience;  // the CONTROL is taken back first
    return Withdraw(op, TimeoutOf(*op));
  }
  LeaveList(op);
  op->expired = true;
  op->grace = now + options_.answer_grace;
  if (op->has_started && op->unpulled > 0) return;  // answers to its CANCELs name missing workers
  if (!op->has_started && AskForMissing(op)) return;
  Fail(op, TimeoutOf(*op));
}

std::string Client::Awaited(const Op& op) const {
  std::string text;
  for (const Rank rank : op.missing) {
    if (!text.empty()) text += ", ";
    text += Format("worker {}", rank);
    const Epoch::State state = epoch_.StateOf(rank);
    if (state != Epoch::State::kAlive)
      text += Format(" ({})", state == Epoch::State::kAwaited ? "not yet joined" : Name(state));
  }
  if (!text.empty()) return text;
  for (const ServerLink& link : links_) {
    if (link.busy() && link.state() != ServerLink::State::kOpen) {
      return Format("server {}", link.server());
    }
  }
  if (op.operation.Is<Operation::Leave, Operation::NewestEpoch>() || head_.Has(op.id))
    return "the head";
  if (op.operation.Is<Operation::Init>()) {
    const bool has_heirs = epoch_.policy == Epoch::Policy::kContinue;
    return has_heirs ? "the worker that creates the key" : "worker 0";
  }
  return "a server";
}

Error Client::TimeoutOf(const Op& op) const {
  const auto key = keys_.find(op.key);
  std::string round;
  if (key != keys_.end() && !op.missing.empty()) {
    uint64_t number = op.round > 0 ? op.round : key->second.round;
    // An observer waits until all chunks have the newest version of any.
    if (role_ == Role::kObserver && !op.versions.empty()) {
      number = *std::max_element(op.versions.begin(), op.versions.end());
    }
    round = Format(", round {}", key->second.base + number);
  }
  std::string who = Awaited(op);
  if (!op.missing.empty()) {
    who.clear();
    for (const Rank rank : op.missing) {
      who += Format("{}worker {} ({})", who.empty() ? "" : ", ", rank, Name(epoch_.StateOf(rank)));
    }
  }
  return {Code::kDeadlineExceeded,
          Format("waited {:.1f} s for {}{}", Seconds(now_ - op.begin), who, round)};
}

}  // namespace tkv
