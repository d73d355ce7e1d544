// Connections to the head and the servers, and the messages that they send.

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"

namespace tkv {

void Client::Joined(Role role, const Welcome& welcome) {
  role_ = role;
  welcome_ = welcome;
}

void Client::On(const Epoch& epoch, Time now, Effects* effects) {
  if (epoch.number <= epoch_.number || closed_) return;
  now_ = now;
  const Epoch old = std::exchange(epoch_, epoch);
  if (role_ == Role::kWorker && !has_left_) {
    const Epoch::Seat& self = epoch_.workers[static_cast<size_t>(welcome_.rank)];
    const bool dead = self.incarnation == welcome_.incarnation && self.IsDead();
    if (self.incarnation > welcome_.incarnation || dead) {
      return Refused(Error(Code::kAborted,
                           Format("worker {}: this life is over (incarnation {}): {}",
                                  welcome_.rank, welcome_.incarnation,
                                  dead ? "the head holds it for dead" : "another one has begun")),
                     effects);
    }
  }
  for (size_t rank = 0; rank < epoch_.workers.size(); ++rank) {
    const bool was_dead = rank < old.workers.size() && old.workers[rank].IsDead() &&
                          old.workers[rank].incarnation == epoch_.workers[rank].incarnation;
    const bool is_self = role_ == Role::kWorker && static_cast<Rank>(rank) == welcome_.rank;
    if (epoch_.workers[rank].IsDead() && !was_dead && !is_self) {
      effects->Log(Level::kWarning, Format("worker {} is dead", rank));
    }
  }
  while (links_.size() < epoch_.servers.size()) {
    links_.emplace_back(static_cast<uint32_t>(links_.size()));
  }
  for (ServerLink& link : links_) {
    const Epoch::Seat& seat = epoch_.servers[link.server()];
    if (seat.IsOver()) {
      const bool has_left = seat.state == Epoch::State::kLeft;  // after all workers have left
      Kill(&link,
           Error(Code::kUnavailable,
                 has_left ? Format("server {} has left: the job has ended", link.server())
                          : Format("server {} is dead{}", link.server(), kStartAgain)),
           effects);
    } else if (link.incarnation() != 0 && seat.incarnation > link.incarnation()) {
      Kill(&link,
           Error(Code::kUnavailable, Format("server {} has started again and has lost its values{}",
                                            link.server(), kStartAgain)),
           effects);
    }
    Pump(&link);
  }
  WakeAll();
  Settle(now, effects);
}

void Client::HeadOpened(Effects* effects) {
  head_.Opened(effects);
  Settle(now_, effects);
}

void Client::HeadClosed(Time now) {
  head_.Closed(now);
  Rearm(head_.GivesUpAt());
}

void Client::HeadEnded(Time now) {
  head_.Ended(now);
  Rearm(head_.GivesUpAt());
}

void Client::HeadAnswered(const Message& message, Time now, Effects* effects) {
  const bool is_answer = message.type == Type::kOk || message.type == Type::kPong;
  if (!is_answer || !head_.Has(message.seq)) return;
  Op* const op = Find(message.seq);
  if (op->operation.Is<Operation::NewestEpoch>()) {
    op->round = message.number;  // the head may end before it has sent that EPOCH
  } else {
    if (op->operation.Is<Operation::Leave>()) has_left_ = true;
    Finish(op);
  }
  Settle(now, effects);
}

void Client::Refused(const Error& error, Effects* effects) {
  if (closed_) return;
  const bool is_leaving =
      std::any_of(leaving_.begin(), leaving_.end(), [&](OpId id) { return Find(id)->has_started; });
  if (!has_left_ && !is_leaving) effects->Log(Level::kWarning, error.what());
  FailAll(error);
  closed_ = error;
  for (ServerLink& link : links_) {
    link.Close(effects);
    link.NoteWait(now_, &waits_);
  }
}

void Client::SayGoodbye(Effects* effects) {
  if (!has_left_ || !head_.is_lost()) return;
  for (ServerLink& link : links_) {
    if (link.state() != ServerLink::State::kOpen) continue;
    effects->Close(link.link(), Code::kAborted, "the worker has left");
  }
}

ServerLink* Client::LinkOf(LinkId id) {
  for (ServerLink& link : links_) {
    if (link.link() == id && id != kNoLink) return &link;
  }
  return nullptr;
}

uint64_t Client::Low(LinkId id) {
  ServerLink* const link = LinkOf(id);
  return link == nullptr ? 0 : link->Low();
}

void Client::Opened(uint32_t server, LinkId id, Time now, Effects* effects) {
  ServerLink& link = links_[server];
  if (link.state() != ServerLink::State::kDialing || closed_) {
    return effects->Close(id, Code::kCancelled, "not needed any more");
  }
  link.Opened(id, Turn(now, effects));
  Hello hello;
  hello.job = options_.job;
  hello.role = role_;
  hello.rank = welcome_.rank;
  hello.incarnation = welcome_.incarnation;
  hello.known = link.incarnation();
  hello.protocol = options_.protocol;
  Message message;
  message.type = Type::kHello;
  message.extra = Encode(hello);
  effects->Send(id, std::move(message));
}

void Client::Closed(LinkId id, Time now) {
  if (ServerLink* const link = LinkOf(id)) link->Lost(Turn(now, nullptr));
}

void Client::Failed(uint32_t server, Time now) {
  ServerLink& link = links_[server];
  if (link.state() == ServerLink::State::kDialing) link.Lost(Turn(now, nullptr));
}

void Client::ServerRefused(uint32_t server, const Error& error, Effects* effects) {
  Kill(&links_[server], Error(error.code(), Format("server {}: {}", server, error.what())),
       effects);
}

// If no message for the server is unanswered, all of its operations fail at once, with the name of
// the missing resource.  Else the server may have done an operation.  All operations then wait for
// a connection until the patience ends.
void Client::LackedResources(uint32_t server, const Error& error, Time now, Effects* effects) {
  ServerLink& link = links_[server];
  if (link.dead() || closed_) return;
  now_ = now;
  link.NoteLack(error.what());
  if (link.has_unanswered()) return;
  Abandon(&link, Error(error.code(), Format("server {}: {}", server, error.what())), effects);
  Settle(now, effects);
}

// Gives up this server for good, and fails everything that waits for it.
void Client::Kill(ServerLink* link, const Error& error, Effects* effects) {
  if (link->dead()) return;
  if (!has_left_) effects->Log(Level::kWarning, error.what());
  link->Die(error, effects);
  Abandon(link, error, effects);
}

// Fails everything that waits for this server.
void Client::Abandon(ServerLink* link, const Error& error, Effects* effects) {
  size_t sent_count = 0;
  const std::vector<Outgoing> outgoing = link->TakeAll(&sent_count);
  std::vector<Outgoing> again;
  for (size_t i = 0; i < outgoing.size(); ++i) {
    const Outgoing& lost = outgoing[i];
    if (i >= sent_count && lost.message.type == Type::kPush) {
      if (KnownChunk* const known = ChunkOf(lost.message.key, lost.message.chunk).chunk) {
        Drop(&known->queued_pushes);
      }
    }
    OnAnswer(lost, link->server(), ErrorReply(lost.message.seq, error.code(), error.what()),
             effects);
    const Type type = lost.message.type;
    if ((type == Type::kWithdraw || type == Type::kClose) && !link->dead()) {
      // No push may reach the server before the CONTROL is taken back, and the keys of a closed
      // store have to be freed.  Both messages wait as long as that takes.
      again.push_back(lost);
      again.back().op = kNoOp;
    }
  }
  std::ranges::reverse(again);  // each QueueFirst puts one before those queued so far
  for (Outgoing& message : again) link->QueueFirst(std::move(message));
  link->NoteWait(now_, &waits_);
}

void Client::Received(LinkId id, const Message& message, Time now, Effects* effects) {
  ServerLink* const link = LinkOf(id);
  if (link == nullptr || closed_) return;
  now_ = now;
  link->Heard(now);
  const uint32_t server = link->server();
  if (message.type == Type::kError && message.seq == 0) {  // the server closes the session
    const Error error = ErrorOf(message);
    effects->Close(id, Code::kCancelled, "");
    if (error.code() == Code::kCancelled) return Closed(id, now);  // an expected end
    if (error.code() == Code::kAborted) return Refused(error, effects);
    return Kill(link, Error(error.code(), Format("server {}: {}", server, error.what())), effects);
  }
  if (message.type == Type::kWelcome) return OnWelcome(link, message, now, effects);
  const std::optional<Outgoing> sent = link->Take(message.seq);
  if (!sent) return;  // a repeated answer, or a PONG
  Pump(link);
  OnAnswer(*sent, server, message, effects);
}

void Client::OnWelcome(ServerLink* link, const Message& message, Time now, Effects* effects) {
  if (link->state() != ServerLink::State::kHello) return;
  const Welcome welcome = DecodeWelcome(message.extra);
  const std::string who = Format("server {}", link->server());
  if (const auto error = WhyNotTogether(who, welcome.protocol, "this process", options_.protocol)) {
    effects->Close(link->link(), error->code(), error->what());
    return Kill(link, *error, effects);
  }
  const bool is_known = link->incarnation() != 0;
  const bool changed = is_known && welcome.server_incarnation != link->incarnation();
  // A server forgets an observer whose link is lost, so an observer only sends its requests again.
  const bool forgotten =
      role_ == Role::kWorker && is_known && !welcome.resumed && link->has_unanswered();
  if (changed || forgotten) {
    effects->Close(link->link(), Code::kCancelled,
                   "this server is not the one that the client knew");
    const Error error(Code::kUnavailable,
                      Format("{} has started again and has lost its values{}", who, kStartAgain));
    return Kill(link, error, effects);
  }
  link->Welcomed(welcome, Turn(now, effects));
  Pump(link);
}

// Handles an answer, or an ERROR in place of an answer that will not come.
void Client::OnAnswer(const Outgoing& sent, uint32_t server, const Message& reply,
                      Effects* effects) {
  switch (sent.purpose) {
    case Purpose::kReady:
      return OnReadyAnswer(sent, server, reply);
    case Purpose::kJoin:
      return OnJoinAnswer(sent, reply);
    case Purpose::kStatus:
      return OnMissingAnswer(sent, reply, effects);
    case Purpose::kCancel:
      return OnCancelAnswer(sent, server, reply);
    case Purpose::kOp:
      break;
  }
  switch (sent.message.type) {
    case Type::kPush:
      return OnPushAnswer(sent, reply);
    case Type::kPull:
      return (sent.message.flags & kOfCut) != 0 ? OnReadAnswer(sent, reply)
                                                : OnPullAnswer(sent, reply);
    case Type::kTrace:
      return OnTraceAnswer(sent, reply);
    case Type::kList:
      return OnListAnswer(sent, reply);
    case Type::kDescribe: {
      const Op* const op = Find(sent.op);
      const bool looks = op != nullptr && op->operation.Is<Operation::Describe>();
      return looks ? OnDescribed(sent, reply) : OnInitAnswer(sent, reply);
    }
    case Type::kInit:
      return OnInitAnswer(sent, reply);
    default:
      return OnOtherAnswer(sent, reply);
  }
}

void Client::Queue(uint32_t server, Outgoing outgoing) {
  links_[server].Queue(std::move(outgoing), this);
  Pump(&links_[server]);
}

void Client::Pump(ServerLink* link) {
  if (link->Mark()) pump_.push_back(link->server());
}

void Client::PumpLink(ServerLink* link, Time now, Effects* effects) {
  if (!link->busy()) return;
  if (link->dead()) {
    const Error error = *link->dead();
    return Abandon(link, error, effects);
  }
  const LinkTurn turn = Turn(now, effects);
  link->Connect(turn, epoch_.servers[link->server()].state == Epoch::State::kAlive);
  link->Send(turn);
}

void Client::TickLink(ServerLink* link, const LinkTurn& turn) {
  if (link->dead() || !link->busy()) return;
  if (const auto error = link->OutOfReach(turn)) {
    // Without the head this client may never have heard that the server is there.
    const char* const why = head_.is_lost() ? "; the head is out of reach, too" : "";
    return Abandon(link, Error(error->code(), error->what() + std::string(why)), turn.effects);
  }
  if (link->state() == ServerLink::State::kIdle) return Pump(link);
  link->Ping(turn);
}

}  // namespace tkv
