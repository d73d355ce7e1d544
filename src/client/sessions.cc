// Links, queues and time.

#include <algorithm>

#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

constexpr Time kRedialFirst = 50 * kMillisecond;
constexpr Time kRedialMax = 1 * kSecond;

double Seconds(Time time) { return static_cast<double>(time) / kSecond; }

}  // namespace

// ---- the head -----------------------------------------------------------------------------------

void Client::Joined(Role role, const Welcome& welcome) {
  role_ = role;
  welcome_ = welcome;
}

void Client::On(const Epoch& epoch, Time now, Effects* effects) {
  if (epoch.number <= epoch_.number || closed_) return;
  const Epoch old = std::exchange(epoch_, epoch);
  if (role_ == Role::kWorker && !has_left_) {
    const Epoch::Member& self = epoch_.workers[static_cast<size_t>(welcome_.rank)];
    const bool dead = self.incarnation == welcome_.incarnation && self.state == Epoch::State::kDead;
    if (self.incarnation > welcome_.incarnation || dead) {
      return Refused(Error(Code::kAborted,
                           Format("worker {}: this life is over (incarnation {}): {}",
                                  welcome_.rank, welcome_.incarnation,
                                  dead ? "the head holds it for dead" : "another one has begun")),
                     effects);
    }
  }
  for (size_t rank = 0; rank < epoch_.workers.size(); ++rank) {
    const bool was_dead = rank < old.workers.size() && old.workers[rank] == epoch_.workers[rank];
    if (epoch_.workers[rank].state == Epoch::State::kDead && !was_dead) {
      effects->Log(Level::kWarning, Format("worker {} is dead", rank));
    }
  }
  while (sessions_.size() < epoch_.servers.size()) {
    sessions_.emplace_back();
    sessions_.back().server = static_cast<uint32_t>(sessions_.size() - 1);
  }
  for (ServerSession& session : sessions_) {
    const Epoch::Member& member = epoch_.servers[session.server];
    if (member.state == Epoch::State::kDead || member.state == Epoch::State::kLeft) {
      const bool has_left = member.state == Epoch::State::kLeft;  // after all workers had
      Kill(&session,
           Error(Code::kUnavailable,
                 has_left ? Format("server {} has left: the job has ended", session.server)
                          : Format("server {} is dead{}", session.server, kStartAgain)),
           effects);
    } else if (session.incarnation != 0 && member.incarnation > session.incarnation) {
      Kill(&session,
           Error(Code::kUnavailable, Format("server {} has started again and has lost its values{}",
                                            session.server, kStartAgain)),
           effects);
    }
    Pump(&session);
  }
  WakeAll();
  Settle(now, effects);
}

void Client::HeadOpened(Effects* effects) {
  head_lost_since_ = kNever;
  for (const OpId id : leaving_) {  // sent again: the answer may have been lost
    Find(id)->has_left = false;
  }
  if (Op* const op = controls_.empty() ? nullptr : Find(controls_.front())) {
    if (op->phase == 2) op->phase = 1;
  }
  Settle(now_, effects);
}

void Client::HeadClosed(Time now) {
  if (head_lost_since_ == kNever) head_lost_since_ = now;
  Rearm(now + options_.server_patience);
}

void Client::HeadAnswered(const Message& message, Time now, Effects* effects) {
  Op* const op = Find(message.seq);
  if (op == nullptr || message.type != Type::kOk) return;
  if (op->what.kind == Operation::Kind::kLeave) {
    has_left_ = true;
  } else if (op->what.kind != Operation::Kind::kControl || op->phase != 2) {
    return;
  }
  Finish(op);
  Settle(now, effects);
}

void Client::Refused(const Error& error, Effects* effects) {
  if (closed_) return;
  effects->Log(Level::kWarning, error.what());
  FailAll(error);
  closed_ = error;
  for (ServerSession& session : sessions_) {
    if (session.link != kNoLink) effects->Close(session.link, Code::kCancelled, "");
    session.link = kNoLink;
  }
}

// ---- links --------------------------------------------------------------------------------------

ServerSession* Client::SessionOfLink(LinkId link) {
  for (ServerSession& session : sessions_) {
    if (session.link == link && link != kNoLink) return &session;
  }
  return nullptr;
}

uint64_t Client::Low(LinkId link) {
  ServerSession* const session = SessionOfLink(link);
  return session == nullptr ? 0 : session->Low();
}

void Client::Opened(uint32_t server, LinkId link, Time now, Effects* effects) {
  ServerSession& session = sessions_[server];
  if (session.state != ServerSession::State::kDialing || closed_) {
    return effects->Close(link, Code::kCancelled, "not needed any more");
  }
  session.link = link;
  session.state = ServerSession::State::kHello;
  session.last_heard = now;
  session.next_ping = now + 2 * options_.ping_after;
  Rearm(session.next_ping);
  Hello hello;
  hello.job = options_.job;
  hello.role = role_;
  hello.rank = welcome_.rank;
  hello.incarnation = welcome_.incarnation;
  hello.known = session.incarnation;
  hello.protocol = options_.protocol;
  Message message;
  message.type = Type::kHello;
  message.extra = Encode(hello);
  effects->Send(link, std::move(message));
}

void Client::Closed(LinkId link, Time now) {
  if (ServerSession* const session = SessionOfLink(link)) {
    session->link = kNoLink;
    Unreachable(session->server, now);
  }
}

void Client::Failed(uint32_t server, Time now) {
  if (sessions_[server].state == ServerSession::State::kDialing) Unreachable(server, now);
}

void Client::ServerRefused(uint32_t server, const Error& error, Effects* effects) {
  Kill(&sessions_[server], Error(error.code(), Format("server {}: {}", server, error.what())),
       effects);
}

void Client::Unreachable(uint32_t server, Time now) {
  ServerSession& session = sessions_[server];
  if (session.state == ServerSession::State::kDead) return;
  session.state = ServerSession::State::kIdle;
  if (session.down_since == kNever) session.down_since = now;
  session.redial_after =
      session.redial_after == 0 ? kRedialFirst : std::min(session.redial_after * 2, kRedialMax);
  session.next_dial = now + session.redial_after;
  Rearm(session.next_dial);
}

// Nothing more can be done with this server.
void Client::Kill(ServerSession* session, const Error& error, Effects* effects) {
  if (session->dead) return;
  if (!has_left_) effects->Log(Level::kWarning, error.what());
  session->dead = error;
  if (session->link != kNoLink) effects->Close(session->link, Code::kCancelled, "");
  session->link = kNoLink;
  session->state = ServerSession::State::kDead;
  Abandon(session, error, effects);
}

// Ends everything that waits for this server.
void Client::Abandon(ServerSession* session, const Error& error, Effects* effects) {
  std::vector<Outgoing> outgoing;
  outgoing.reserve(session->sent.size() + session->pushes.size() + session->pulls.size());
  std::vector<uint64_t> seqs;
  seqs.reserve(session->sent.size());
  for (const auto& [seq, sent] : session->sent) seqs.push_back(seq);
  std::sort(seqs.begin(), seqs.end());
  for (const uint64_t seq : seqs) outgoing.push_back(std::move(session->sent.at(seq)));
  const size_t sent_count = outgoing.size();
  for (auto* queue : {&session->pushes, &session->pulls}) {
    for (Outgoing& waiting : *queue) outgoing.push_back(std::move(waiting));
    queue->clear();
  }
  session->sent.clear();
  session->mutating.clear();
  session->unaccepted_bytes = session->waiting_pull_bytes = session->ready_pull_bytes = 0;
  for (size_t i = 0; i < outgoing.size(); ++i) {
    const Outgoing& lost = outgoing[i];
    if (i >= sent_count && lost.message.type == Type::kPush) {
      if (const auto key = keys_.find(lost.message.key); key != keys_.end()) {
        --key->second.chunks[lost.message.chunk].queued_pushes;
      }
    }
    OnAnswer(lost, session->server, ErrorReply(lost.message.seq, error.code(), error.what()),
             effects);
    const Type type = lost.message.type;
    if ((type == Type::kWithdraw || type == Type::kClose) && !session->dead) {
      // Nothing may be pushed there before the CONTROL is taken back, and the keys of a closed store
      // are to be freed, however long that takes.
      Outgoing again = lost;
      again.op = kNoOp;
      session->pushes.push_front(std::move(again));
    }
  }
}

// ---- queues -------------------------------------------------------------------------------------

namespace {

// Whether others may leave before it that came after it.
bool CanBePassed(const Outgoing& waiting) {
  const Message& message = waiting.message;
  if (message.type == Type::kPush) return (message.flags & kBarrierKey) == 0;
  return message.type == Type::kPull && waiting.purpose == Purpose::kOp;
}

}  // namespace

// Larger priorities first; equal ones, and those of one key, in the order in which they came.
void Client::Queue(uint32_t server, Outgoing outgoing) {
  ServerSession& session = sessions_[server];
  const bool follows_push = IsMutating(outgoing.message.type) || FollowsPush(outgoing);
  auto& queue = follows_push ? session.pushes : session.pulls;
  auto place = queue.end();
  if (CanBePassed(outgoing)) {
    session.has_priorities |= outgoing.priority != 0;
    while (place != queue.begin()) {
      const Outgoing& before = *std::prev(place);
      const bool passes = before.priority < outgoing.priority && CanBePassed(before) &&
                          before.message.key != outgoing.message.key;
      if (!passes) break;
      --place;
    }
  }
  queue.insert(place, std::move(outgoing));
  Pump(&session);
}

// Whether it is a pull that has to see a push that has not left.
bool Client::FollowsPush(const Outgoing& outgoing) {
  if (outgoing.message.type != Type::kPull || outgoing.purpose != Purpose::kOp) return false;
  const auto found = keys_.find(outgoing.message.key);
  return found != keys_.end() && found->second.chunks[outgoing.message.chunk].queued_pushes > 0;
}

void Client::Pump(ServerSession* session) {
  if (!std::exchange(session->is_to_pump, true)) pump_.push_back(session->server);
}

void Client::PumpSession(ServerSession* session, Time now, Effects* effects) {
  if (!session->busy()) return;
  if (session->dead) {
    const Error error = *session->dead;
    return Abandon(session, error, effects);
  }
  if (session->state == ServerSession::State::kIdle) {
    if (session->down_since == kNever) {
      session->down_since = now;
      Rearm(now + options_.server_patience);
    }
    const bool is_there = epoch_.servers[session->server].state == Epoch::State::kAlive;
    if (is_there && (session->next_dial == kNever || session->next_dial <= now)) {
      session->next_dial = kNever;
      session->state = ServerSession::State::kDialing;
      session->next_ping = now + 2 * options_.ping_after;  // until when it has to be open
      Rearm(session->next_ping);
      effects->dials.push_back({Peer::Kind::kServer, session->server});
    }
    return;
  }
  if (session->state != ServerSession::State::kOpen) return;
  const uint64_t credit = session->has_priorities
                              ? std::min(session->credit_bytes, ServerSession::kPriorityBytes)
                              : session->credit_bytes;
  while (!session->pushes.empty()) {
    if (session->pushes.front().message.type == Type::kPull) {  // its push has left
      session->pulls.push_back(std::move(session->pushes.front()));
      session->pushes.pop_front();
      continue;
    }
    const size_t bytes = session->pushes.front().message.body.size;
    if (session->unaccepted_bytes > 0 && session->unaccepted_bytes + bytes > credit) break;  // C4
    if (session->next_seq >= session->Low() + ServerSession::kWindow) break;
    Outgoing outgoing = std::move(session->pushes.front());
    session->pushes.pop_front();
    Leave(session, std::move(outgoing), effects);
  }
  std::deque<Outgoing>& pulls = session->pulls;
  size_t kept = 0;
  for (size_t i = 0; i < pulls.size(); ++i) {  // it may grow
    if (PullFits(session, &pulls[i])) {
      Leave(session, std::move(pulls[i]), effects);
      continue;
    }
    if (kept != i) pulls[kept] = std::move(pulls[i]);
    ++kept;
  }
  pulls.erase(pulls.begin() + static_cast<ptrdiff_t>(kept), pulls.end());
}

// Answers that may be long in coming and answers that come at once have a bound each, so that
// neither can hold up the other; a pull beyond the first bound waits with NO_BODY until it is of
// the second kind.
bool Client::PullFits(ServerSession* session, Outgoing* outgoing) {
  const Message& message = outgoing->message;
  if (message.type != Type::kPull || outgoing->purpose != Purpose::kOp) return true;
  const auto found = keys_.find(message.key);
  if (found == keys_.end()) return true;
  KeyState& key = found->second;
  ChunkPlace& place = key.chunks[message.chunk];
  if (place.queued_pushes > 0) return false;  // it has to see that push
  if (outgoing->pull_bytes == 0 || place.unbounded) return true;
  const size_t bytes = outgoing->pull_bytes;
  const bool waits = message.number > place.version;
  size_t* const used = waits ? &session->waiting_pull_bytes : &session->ready_pull_bytes;
  if (*used > 0 && *used + bytes > options_.pull_bytes_max) {
    if (waits) Ask(message.key, &key, message.chunk, message.number);
    return false;
  }
  *used += bytes;
  outgoing->pulled = waits ? Outgoing::Pulled::kWaiting : Outgoing::Pulled::kReady;
  return true;
}

void Client::Uncount(ServerSession* session, const Outgoing& sent) {
  if (IsMutating(sent.message.type)) session->unaccepted_bytes -= sent.message.body.size;
  if (sent.pulled == Outgoing::Pulled::kWaiting) session->waiting_pull_bytes -= sent.pull_bytes;
  if (sent.pulled == Outgoing::Pulled::kReady) session->ready_pull_bytes -= sent.pull_bytes;
}

void Client::Leave(ServerSession* session, Outgoing outgoing, Effects* effects) {
  Message& message = outgoing.message;
  message.seq = session->next_seq++;
  if (IsMutating(message.type)) {
    session->mutating.push_back(message.seq);
    session->unaccepted_bytes += message.body.size;
  }
  const auto found = keys_.find(message.key);
  if (found != keys_.end() && message.chunk < found->second.chunks.size()) {
    SetNeed(found->second, outgoing.purpose, &message);
  }
  if (session->sent.empty()) {  // from now on the server owes an answer
    session->last_heard = now_;
    session->next_ping = now_ + options_.ping_after;
    Rearm(session->next_ping);
  }
  effects->Send(session->link, message);
  session->sent.emplace(message.seq, std::move(outgoing));
}

// An asynchronous push follows the one before it, and a pull that asks for no round sees the last
// push (C5).  Everything else says which making of the key it is for: a worker that has missed a
// delete learns it from the error.
void Client::SetNeed(KeyState& key, Purpose purpose, Message* message) {
  ChunkPlace& place = key.chunks[message->chunk];
  const bool is_push = message->type == Type::kPush;
  const bool is_read = message->type == Type::kPull && purpose == Purpose::kOp;
  if (!is_push && message->type != Type::kPull && message->type != Type::kAbstain) return;
  const bool follows = is_push ? key.meta.mode == KeyMeta::Mode::kAsync
                               : is_read && role_ == Role::kWorker && !key.meta.exact_reads();
  if (follows) {
    message->need = place.last_push_seq;
  } else {
    message->need = key.meta.birth;
    message->flags |= kOfBirth;
  }
  if (!is_push) return;
  place.last_push_seq = message->seq;
  --place.queued_pushes;
}

// ---- the body of a VALUE ------------------------------------------------------------------------

Block Client::Landing(LinkId link, const Message& message) {
  ServerSession* const session = SessionOfLink(link);
  if (session == nullptr || message.type != Type::kValue) return {};
  const auto sent = session->sent.find(message.seq);
  if (sent == session->sent.end() || sent->second.message.type != Type::kPull) return {};
  const Op* const op = Find(sent->second.op);
  const auto key = keys_.find(sent->second.message.key);
  if (op == nullptr || key == keys_.end()) return {};
  const KeyMeta& meta = key->second.meta;
  const uint32_t chunk = sent->second.message.chunk;
  const codec::Range range = codec::DenseRange(meta, chunk);
  if (message.body.size != range.size || range.begin + range.size > op->what.out.size) return {};
  return {op->what.out.data + range.begin, range.size, op->what.out.owner};
}

// ---- time ---------------------------------------------------------------------------------------

void Client::Tick(Time now, Effects* effects) {
  if (now < next_timer_) return;
  now_ = now;
  next_timer_ = kNever;
  if (closed_) return;
  for (ServerSession& session : sessions_) TickSession(&session, now, effects);
  std::vector<OpId> due;
  ops_.ForEach([&](OpId id, const Op& op) {
    if (op.NextTime() <= now) due.push_back(id);
  });
  std::sort(due.begin(), due.end());
  if (!due.empty()) FindStands();
  for (const OpId id : due) {
    if (Op* const op = Find(id)) TickOp(op, now, effects);
  }
  if (head_lost_since_ != kNever && now - head_lost_since_ >= options_.server_patience &&
      !controls_.empty()) {
    Op* const op = Find(controls_.front());
    if (op != nullptr && op->phase == 2) {  // it is out of reach: the CONTROL is taken back
      op->error = Error(Code::kUnavailable, Format("the head is out of reach for {:.1f} s",
                                                   Seconds(now - head_lost_since_)));
      op->phase = 3;
      QueueControl(op, Type::kWithdraw);
    }
  }
  if (head_lost_since_ != kNever && now - head_lost_since_ >= options_.server_patience) {
    while (!leaving_.empty()) {  // there is nobody to take leave of
      Op& op = *Find(*leaving_.begin());
      const Error error(Code::kUnavailable, Format("the head is out of reach for {:.1f} s",
                                                   Seconds(now - head_lost_since_)));
      effects->Log(Level::kWarning,
                   Format("{}: left without a word to the others: {}", Head(op), error.what()));
      Fail(&op, error);
    }
  }
  Settle(now, effects);
  ops_.ForEach([&](OpId, const Op& op) { Rearm(op.NextTime()); });
  if (head_lost_since_ != kNever && !(controls_.empty() && leaving_.empty())) {
    Rearm(std::max(head_lost_since_ + options_.server_patience, now + kSecond));
  }
  for (const ServerSession& session : sessions_) {
    if (!session.busy() || session.dead) continue;
    if (session.state == ServerSession::State::kIdle) {
      Rearm(session.next_dial);
      if (session.down_since != kNever) Rearm(session.down_since + options_.server_patience);
    } else {
      Rearm(session.next_ping);
      if (session.down_since != kNever) Rearm(session.down_since + options_.server_patience);
    }
  }
}

void Client::TickSession(ServerSession* session, Time now, Effects* effects) {
  if (session->dead || !session->busy()) return;
  if (session->down_since != kNever && now - session->down_since >= options_.server_patience) {
    const Error error(Code::kUnavailable,
                      Format("server {}: out of reach for {:.1f} s", session->server,
                             Seconds(now - session->down_since)));
    session->down_since = now;
    return Abandon(session, error, effects);
  }
  if (session->state == ServerSession::State::kIdle) {
    Pump(session);
    return;
  }
  if (session->next_ping > now) return;
  if (session->state == ServerSession::State::kDialing) return Unreachable(session->server, now);
  const bool owes = session->state == ServerSession::State::kHello || !session->sent.empty();
  if (owes && now - session->last_heard >= 2 * options_.ping_after) {
    effects->Log(Level::kWarning, Format("server {} is silent for {:.1f} s; connecting again",
                                         session->server, Seconds(now - session->last_heard)));
    effects->Close(session->link, Code::kUnavailable, "silence");
    session->link = kNoLink;
    return Unreachable(session->server, now);
  }
  session->next_ping = now + options_.ping_after;
  if (session->state != ServerSession::State::kOpen) return;
  Message ping;
  ping.type = Type::kPing;
  effects->Send(session->link, std::move(ping));
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
  if (stands_[op->what.verb].oldest != op->id) return;  // that one speaks for all
  if (!AskWho(op)) TellStand(*op, 0, effects);
}

// Asks a server whose answer the operation waits for who is missing; false where there is none.
bool Client::AskWho(Op* op) {
  for (ServerSession& session : sessions_) {
    if (session.state != ServerSession::State::kOpen) continue;
    for (const auto& [seq, sent] : session.sent) {
      const bool of_op = sent.op == op->id && sent.message.type == Type::kPull;
      const bool of_key = !op->has_left && sent.op == kNoOp && sent.message.key == op->key &&
                          sent.message.type == Type::kPull;
      if (!of_op && !of_key) continue;
      Outgoing ask;
      ask.op = op->id;
      ask.purpose = Purpose::kNotice;
      ask.message.type = Type::kStatus;
      ask.message.key = sent.message.key;
      ask.message.chunk = sent.message.chunk;
      Queue(session.server, std::move(ask));
      return true;
    }
  }
  return false;
}

// Gives up the pulls of an operation.  With an owner its answers tell who is missing; without one
// nobody waits for them.
void Client::CancelPulls(Op* op, OpId owner) {
  for (ServerSession& session : sessions_) {
    std::vector<uint64_t> seqs;
    for (auto& [seq, sent] : session.sent) {
      const bool parks = sent.message.type == Type::kPull || sent.message.type == Type::kDescribe;
      if (sent.op == op->id && sent.purpose == Purpose::kOp && parks) seqs.push_back(seq);
    }
    std::sort(seqs.begin(), seqs.end());
    for (const uint64_t seq : seqs) {
      const Message& pull = session.sent.at(seq).message;
      Outgoing cancel;
      cancel.op = owner;
      cancel.purpose = Purpose::kCancel;
      cancel.message.type = Type::kCancel;
      cancel.message.key = pull.key;
      cancel.message.chunk = pull.chunk;
      cancel.message.number = seq;
      Queue(session.server, std::move(cancel));
    }
    const auto give_up = [&](const Outgoing& waiting) {
      const bool mine = waiting.op == op->id && waiting.purpose == Purpose::kOp &&
                        !IsMutating(waiting.message.type);
      if (mine) {
        --op->unpulled;
        op->cancelled = true;
        if (const auto key = keys_.find(waiting.message.key);
            key != keys_.end() && waiting.message.type == Type::kPull) {
          --key->second.pulls;
        }
      }
      return mine;
    };
    std::erase_if(session.pulls, give_up);
    std::erase_if(session.pushes, give_up);
  }
}

void Client::Expire(Op* op, Time now) {
  op->expired = true;
  op->grace = now + options_.answer_grace;
  if (op->what.kind == Operation::Kind::kControl && op->phase != 0 && op->phase != 3) {
    op->expired = false;  // it is taken back first
    op->grace = kNever;
    op->deadline = now + options_.server_patience;
    op->error = TimeoutOf(*op);
    op->phase = 3;
    QueueControl(op, Type::kWithdraw);
    return;
  }
  if (op->has_left && op->unpulled > 0) {
    CancelPulls(op, op->id);
    if (op->unpulled > 0) return;
  } else if (!op->has_left && AskWho(op)) {
    return;
  }
  Fail(op, TimeoutOf(*op));
}

std::string Client::Awaited(const Op& op) const {
  std::string text;
  for (const Rank rank : op.missing) {
    if (!text.empty()) text += ", ";
    text += Format("worker {}", rank);
    const Epoch::State state = epoch_.StateOf(rank);
    if (state != Epoch::State::kAlive) text += Format(" ({})", Name(state));
  }
  if (!text.empty()) return text;
  for (const ServerSession& session : sessions_) {
    if (session.busy() && session.state != ServerSession::State::kOpen) {
      return Format("server {}", session.server);
    }
  }
  const bool asks_head = op.what.kind == Operation::Kind::kLeave ||
                         (op.what.kind == Operation::Kind::kControl && op.phase == 2);
  if (asks_head) return "the head";
  if (op.what.kind == Operation::Kind::kInit) return "worker 0";
  return "a server";
}

Error Client::TimeoutOf(const Op& op) const {
  const auto key = keys_.find(op.key);
  std::string round;
  if (key != keys_.end() && !op.missing.empty()) {
    const uint64_t number = op.round > 0 ? op.round : key->second.round;
    round = Format(", round {}", number);
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

const char* Client::StateFor(LinkId link, const Message& message) const {
  for (const ServerSession& session : sessions_) {
    if (session.link != link) continue;
    if (session.state != ServerSession::State::kOpen) return "greeting";
    return session.sent.contains(message.seq) ? "awaited" : "not awaited";
  }
  return "closed";
}

size_t Client::unaccepted_bytes() const {
  size_t bytes = 0;
  for (const ServerSession& session : sessions_) bytes += session.unaccepted_bytes;
  return bytes;
}

}  // namespace tkv
