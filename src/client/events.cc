// Events from outside: messages, connections, and changes of the membership.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"
#include "client/ranges.h"

namespace tkv {

void Client::Joined(Role role, const Welcome& welcome) {
  core_.members.role = role;
  core_.members.welcome = welcome;
}

void Client::On(const Epoch& epoch, Time now, Effects* effects) {
  if (epoch.number <= core_.members.epoch.number || core_.closed) return;
  core_.now = now;
  const Epoch old = std::exchange(core_.members.epoch, epoch);
  if (!core_.members.is_observer() && !core_.has_left) {
    const Epoch::Seat& self =
        core_.members.epoch.workers[static_cast<size_t>(core_.members.welcome.rank)];
    const bool dead = self.incarnation == core_.members.welcome.incarnation && self.IsDead();
    if (self.incarnation > core_.members.welcome.incarnation || dead) {
      return Refused(Error(Code::kAborted,
                           Format("worker {}: this life is over (incarnation {}): {}",
                                  core_.members.welcome.rank, core_.members.welcome.incarnation,
                                  dead ? "the head holds it for dead" : "another one has begun")),
                     effects);
    }
  }
  for (size_t rank = 0; rank < core_.members.epoch.workers.size(); ++rank) {
    const bool was_dead =
        rank < old.workers.size() && old.workers[rank].IsDead() &&
        old.workers[rank].incarnation == core_.members.epoch.workers[rank].incarnation;
    const bool is_self =
        !core_.members.is_observer() && static_cast<Rank>(rank) == core_.members.welcome.rank;
    if (core_.members.epoch.workers[rank].IsDead() && !was_dead && !is_self) {
      effects->Log(Level::kWarning, Format("worker {} is dead", rank));
    }
  }
  sessions_.OnEpoch(effects);
  core_.keys.WakeAll();
  Settle(now, effects);
}

void Client::HeadOpened(Effects* effects) {
  core_.head.Opened(effects);
  Settle(core_.now, effects);
}

void Client::HeadClosed(Time now) {
  core_.head.Closed(now);
  core_.Rearm(core_.head.GivesUpAt());
}

void Client::HeadEnded(Time now) {
  core_.head.Ended(now);
  core_.Rearm(core_.head.GivesUpAt());
}

void Client::HeadAnswered(const Message& message, Time now, Effects* effects) {
  if (head_.TakeAnswer(message)) Settle(now, effects);
}

void Client::Refused(const Error& error, Effects* effects) {
  if (core_.closed) return;
  const bool is_leaving = std::any_of(core_.leaves.begin(), core_.leaves.end(),
                                      [&](OpId id) { return core_.ops.Find(id)->has_started; });
  if (!core_.has_left && !is_leaving) effects->Log(Level::kWarning, error.what());
  core_.FailAll(error);
  core_.closed = error;
  sessions_.CloseAll(effects);
}

void Client::SayGoodbye(Effects* effects) {
  if (!core_.has_left || !core_.head.is_lost()) return;
  for (ServerLink& link : core_.links) {
    if (link.state() != ServerLink::State::kOpen) continue;
    effects->Close(link.link(), Code::kAborted, "the worker has left");
  }
}

uint64_t Client::Low(LinkId id) {
  ServerLink* const link = core_.LinkOf(id);
  return link == nullptr ? 0 : link->Low();
}

void Client::Opened(uint32_t server, LinkId link, Time now, Effects* effects) {
  sessions_.Opened(server, link, now, effects);
}

void Client::Closed(LinkId link, Time now) { sessions_.Closed(link, now); }

void Client::Failed(uint32_t server, Time now) { sessions_.Failed(server, now); }

void Client::LackedResources(uint32_t server, const Error& error, Time now, Effects* effects) {
  if (sessions_.LackedResources(server, error, now, effects)) Settle(now, effects);
}

void Client::ServerRefused(uint32_t server, const Error& error, Effects* effects) {
  sessions_.Refused(server, error, effects);
}

Block Client::Landing(LinkId link, const Message& message) {
  const ServerLink* const from = core_.LinkOf(link);
  if (from == nullptr || message.type != Type::kValue) return {};
  const Outgoing* const sent = from->FindSent(message.seq);
  if (sent == nullptr || sent->message.type != Type::kPull) return {};
  const Op* const op = core_.ops.Find(sent->op);
  const ClientKey* const key = core_.keys.Find(sent->message.key);
  const bool is_read = (sent->message.flags & kOfCut) != 0;
  if (op == nullptr || (key == nullptr && !is_read)) return {};
  const uint32_t chunk = sent->message.chunk;
  const Operation::Pull* const pull = op->operation.pull();
  if (pull == nullptr) return {};
  const codec::Range range = is_read
                                 ? CutReader::RangeOf(*op->operation.As<Operation::Read>(), chunk)
                                 : PulledRange(key->meta, *pull, chunk);
  if (message.body.size != range.size || range.begin + range.size > pull->out.size) return {};
  return {pull->out.data + range.begin, range.size, pull->out.owner};
}

void Client::Received(LinkId id, const Message& message, Time now, Effects* effects) {
  ServerLink* const link = core_.LinkOf(id);
  if (link == nullptr || core_.closed) return;
  core_.now = now;
  link->Heard(now);
  const uint32_t server = link->server();
  if (message.type == Type::kError && message.seq == 0) {  // the server closes the session
    const Error error = ErrorOf(message);
    effects->Close(id, Code::kCancelled, "");
    if (error.code() == Code::kCancelled) return Closed(id, now);  // an expected end
    if (error.code() == Code::kAborted) return Refused(error, effects);
    return sessions_.Kill(link, Error(error.code(), Format("server {}: {}", server, error.what())),
                          effects);
  }
  if (message.type == Type::kWelcome) return sessions_.OnWelcome(link, message, now, effects);
  const std::optional<Outgoing> sent = link->Take(message.seq);
  if (!sent) return;  // a repeated answer, or a PONG
  core_.Pump(link);
  OnAnswer(*sent, server, message, effects);
}

// Handles an answer, or an ERROR in place of an answer that will not come.
void Client::OnAnswer(const Outgoing& sent, uint32_t server, const Message& reply,
                      Effects* effects) {
  switch (sent.purpose) {
    case Purpose::kReady:
      return pusher_.OnReadyAnswer(sent, server, reply);
    case Purpose::kJoin:
      return finder_.OnAnswer(sent, reply);
    case Purpose::kStatus:
      return waits_.OnMissingAnswer(sent, reply, effects);
    case Purpose::kCancel:
      return waits_.OnCancelAnswer(sent, server, reply);
    case Purpose::kOp:
      break;
  }
  switch (sent.message.type) {
    case Type::kPush:
      return pusher_.OnPushAnswer(sent, reply);
    case Type::kPull:
      return (sent.message.flags & kOfCut) != 0 ? cuts_.OnReadAnswer(sent, reply)
                                                : pusher_.OnPullAnswer(sent, reply);
    case Type::kTrace:
      return questions_.OnTraceAnswer(sent, reply);
    case Type::kList:
      return questions_.OnListAnswer(sent, reply);
    case Type::kDescribe: {
      const Op* const op = core_.ops.Find(sent.op);
      const bool looks = op != nullptr && op->operation.Is<Operation::Describe>();
      return looks ? questions_.OnDescribeAnswer(sent, reply) : maker_.OnInitAnswer(sent, reply);
    }
    case Type::kInit:
      return maker_.OnInitAnswer(sent, reply);
    default:
      return OnOtherAnswer(sent, reply);
  }
}

void Client::OnOtherAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = core_.ops.Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unaccepted);
  if (op->operation.Is<Operation::Control>()) return announcer_.OnAnswer(op, reply);
  if (op->operation.Is<Operation::Close>()) return closing_.OnAnswer(op);
  if (reply.type == Type::kError) return core_.Fail(op, ErrorOf(reply));
  if (op->operation.Is<Operation::FindBase, Operation::Stats>()) {
    return cuts_.OnStatusAnswer(op, sent, reply);
  }
  if (op->unaccepted > 0) return;
  if (op->operation.Is<Operation::Delete>()) core_.keys.At(op->key).Reset();
  core_.Finish(op);
}

}  // namespace tkv
