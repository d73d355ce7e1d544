#include "client/server_link.h"

#include "base/check.h"
#include "base/format.h"

namespace tkv {
namespace {

// Returns true if messages that were queued later may be sent before this one.
bool CanBePassed(const Outgoing& waiting) {
  const Message& message = waiting.message;
  if (message.type == Type::kPush) return (message.flags & kBarrierKey) == 0;
  return message.type == Type::kPull && waiting.purpose == Purpose::kOp;
}

// Returns true if the message is a pull that has to see a push that is still queued.
bool FollowsPush(const Outgoing& outgoing, KnownChunks* chunks) {
  if (outgoing.message.type != Type::kPull || outgoing.purpose != Purpose::kOp) return false;
  if ((outgoing.message.flags & kOfCut) != 0) return false;
  const KnownChunk* const known =
      chunks->ChunkOf(outgoing.message.key, outgoing.message.chunk).chunk;
  return known != nullptr && known->queued_pushes > 0;
}

}  // namespace

const char* NameOf(ServerLink::State state) noexcept {
  switch (state) {
    case ServerLink::State::kIdle:
      return "idle";
    case ServerLink::State::kDialing:
      return "dialing";
    case ServerLink::State::kHello:
      return "hello";
    case ServerLink::State::kOpen:
      return "open";
    case ServerLink::State::kDead:
      return "dead";
  }
  return "?";
}

uint64_t ServerLink::Low() {
  while (!mutating_.empty() && !sent_.contains(mutating_.front())) mutating_.pop_front();
  return mutating_.empty() ? next_seq_ : mutating_.front();
}

// ---- the connection -----------------------------------------------------------------------------

void ServerLink::Connect(const LinkTurn& turn, bool is_there) {
  if (state_ != State::kIdle) return;
  if (down_since_ == kNever) {
    down_since_ = turn.now;
    turn.Rearm(turn.now + turn.limits.server_patience);
  }
  if (!is_there || (next_dial_ != kNever && next_dial_ > turn.now)) return;
  next_dial_ = kNever;
  state_ = State::kDialing;
  next_ping_ = turn.now + 2 * turn.limits.ping_after;  // the dial fails if it takes longer
  turn.Rearm(next_ping_);
  turn.effects->dials.push_back({Peer::Kind::kServer, server_});
}

void ServerLink::Opened(LinkId link, const LinkTurn& turn) {
  link_ = link;
  state_ = State::kHello;
  last_heard_ = turn.now;
  next_ping_ = turn.now + 2 * turn.limits.ping_after;
  turn.Rearm(next_ping_);
}

void ServerLink::Welcomed(const Welcome& welcome, const LinkTurn& turn) {
  const bool is_first = incarnation_ == 0;
  incarnation_ = welcome.server_incarnation;
  features_ = welcome.protocol.features;
  if (is_first) has_begun_ = (features_ & kBegunFeature) == 0 || welcome.rejoined;
  credit_bytes_ = welcome.credit_bytes;
  state_ = State::kOpen;
  down_since_ = kNever;
  lack_.clear();
  open_since_ = turn.now;
  ++counts_.welcomes;
  next_ping_ = turn.now + turn.limits.ping_after;
  turn.Rearm(next_ping_);
  const std::vector<uint64_t> seqs = SentWhere([](const Outgoing&) { return true; });
  if (!seqs.empty()) {
    turn.effects->Log(Level::kWarning, Format("resumed the session with server {}; unanswered "
                                              "operations sent again: {}",
                                              server_, seqs.size()));
  }
  for (const uint64_t seq : seqs) turn.effects->Send(link_, sent_.at(seq).message);
  counts_.resends += seqs.size();
}

void ServerLink::Lost(const LinkTurn& turn) {
  link_ = kNoLink;
  if (state_ == State::kDead) return;
  if (state_ == State::kOpen) backoff_.Ended(turn.now - open_since_);
  state_ = State::kIdle;
  if (down_since_ == kNever) down_since_ = turn.now;
  next_dial_ = turn.now + backoff_.Next();
  turn.Rearm(next_dial_);
}

void ServerLink::Close(Effects* effects) {
  if (link_ != kNoLink) effects->Close(link_, Code::kCancelled, "");
  link_ = kNoLink;
}

void ServerLink::Die(const Error& error, Effects* effects) {
  dead_ = error;
  Close(effects);
  state_ = State::kDead;
}

std::optional<Error> ServerLink::OutOfReach(const LinkTurn& turn) {
  if (down_since_ == kNever || turn.now - down_since_ < turn.limits.server_patience) return {};
  const Time since = std::exchange(down_since_, turn.now);
  return Error(Code::kUnavailable, Format("server {}: out of reach for {:.1f} s{}", server_,
                                          Seconds(turn.now - since), lack_));
}

void ServerLink::Ping(const LinkTurn& turn) {
  if (next_ping_ > turn.now) return;
  if (state_ == State::kDialing) return Lost(turn);
  const bool owes = state_ == State::kHello || !sent_.empty();
  if (owes && turn.now - last_heard_ >= 2 * turn.limits.ping_after) {
    turn.effects->Log(Level::kWarning, Format("server {} is silent for {:.1f} s; connecting again",
                                              server_, Seconds(turn.now - last_heard_)));
    turn.effects->Close(link_, Code::kUnavailable, "silence");
    // The silence counts towards the patience, but at most two ping intervals of it: this process
    // may have been stopped itself.
    if (down_since_ == kNever) down_since_ = turn.now - 2 * turn.limits.ping_after;
    return Lost(turn);
  }
  next_ping_ = turn.now + turn.limits.ping_after;
  if (state_ != State::kOpen) return;
  Message ping;
  ping.type = Type::kPing;
  turn.effects->Send(link_, std::move(ping));
}

void ServerLink::Rearm(const LinkTurn& turn) const {
  if (!busy() || dead_) return;
  turn.Rearm(state_ == State::kIdle ? next_dial_ : next_ping_);
  if (down_since_ != kNever) turn.Rearm(down_since_ + turn.limits.server_patience);
}

template <typename F>
void ServerLink::ForEachQueued(const F& f) const {
  for (const auto* const queue : {&pushes_, &pulls_, &ready_pulls_}) {
    for (const Outgoing& waiting : *queue) f(waiting);
  }
  for (const auto& [chunk, pulls] : asking_pulls_) {
    for (const Outgoing& waiting : pulls) f(waiting);
  }
}

// ---- statistics ---------------------------------------------------------------------------------

void ServerLink::NoteWait(Time now, WaitCounts* waits) {
  if (dead_ || !busy()) {
    counts_.wait.ForNothing(now, waits);
  } else if (state_ != State::kOpen) {
    counts_.wait.For(WaitCause::kLink, now, waits);
  } else if (!is_queued()) {
    counts_.wait.ForNothing(now, waits);
  } else if (pushes_.empty()) {
    counts_.wait.For(WaitCause::kPullBytes, now, waits);
  } else {
    const bool is_window_full = !mutating_.empty() && next_seq_ >= mutating_.front() + kWindow;
    counts_.wait.For(is_window_full ? WaitCause::kWindow : WaitCause::kCredit, now, waits);
  }
}

void ServerLink::AddStats(Time now, StoreStats* stats) const {
  PeerStats peer;
  peer.name = ToString(Peer{Peer::Kind::kServer, server_});
  peer.state = NameOf(state_);
  peer.connections = counts_.welcomes;
  peer.resends = counts_.resends;
  ForEachQueued([&](const Outgoing& waiting) {
    ++peer.queued_messages;
    peer.queued_bytes += waiting.message.body.size;
  });
  peer.unanswered_messages = sent_.size();
  peer.unaccepted_bytes = unaccepted_bytes_;
  if (const auto age = SinceLastWord(now)) peer.last_word_seconds = Seconds(*age);
  stats->resends += counts_.resends;
  if (counts_.welcomes > 1) stats->reconnects += counts_.welcomes - 1;
  stats->peers.push_back(std::move(peer));
}

std::optional<Time> ServerLink::SinceLastWord(Time now) const {
  return counts_.was_heard ? std::optional(now - last_heard_) : std::nullopt;
}

// ---- messages -----------------------------------------------------------------------------------

void ServerLink::Queue(Outgoing outgoing, KnownChunks* chunks) {
  const bool follows_push = IsMutating(outgoing.message.type) || FollowsPush(outgoing, chunks);
  if (CanBePassed(outgoing)) has_priorities_ |= outgoing.priority != 0;
  Insert(std::move(outgoing), follows_push ? &pushes_ : &pulls_);
}

void ServerLink::Insert(Outgoing outgoing, std::deque<Outgoing>* queue) {
  auto position = queue->end();
  if (CanBePassed(outgoing)) {
    while (position != queue->begin()) {
      const Outgoing& before = *std::prev(position);
      const bool passes = before.priority < outgoing.priority && CanBePassed(before) &&
                          before.message.key != outgoing.message.key;
      if (!passes) break;
      --position;
    }
  }
  queue->insert(position, std::move(outgoing));
}

void ServerLink::Send(const LinkTurn& turn) {
  if (state_ != State::kOpen) return;
  SendPushes(turn);
  SendPulls(turn);
}

void ServerLink::SendPushes(const LinkTurn& turn) {
  const uint64_t credit = has_priorities_ ? std::min(credit_bytes_, kPriorityBytes) : credit_bytes_;
  while (!pushes_.empty()) {
    if (pushes_.front().message.type == Type::kPull) {  // its push was sent
      pulls_.push_back(std::move(pushes_.front()));
      pushes_.pop_front();
      continue;
    }
    const size_t bytes = pushes_.front().message.body.size;
    if (unaccepted_bytes_ > 0 && unaccepted_bytes_ + bytes > credit) return;
    if (next_seq_ >= Low() + kWindow) return;
    Outgoing outgoing = std::move(pushes_.front());
    pushes_.pop_front();
    SendNow(std::move(outgoing), turn);
  }
}

// Sends or delays each pull once, and again when its limit or its chunk allows it.
void ServerLink::SendPulls(const LinkTurn& turn) {
  SendReadyPulls(turn);
  while (!pulls_.empty()) {  // AskFor may add pulls
    Outgoing pull = std::move(pulls_.front());
    pulls_.pop_front();
    SendOrDelay(std::move(pull), turn);
  }
}

void ServerLink::SendReadyPulls(const LinkTurn& turn) {
  while (!ready_pulls_.empty() &&
         CountPull(Outgoing::Pulled::kReady, &ready_pull_bytes_, &ready_pulls_.front(), turn)) {
    Outgoing pull = std::move(ready_pulls_.front());
    ready_pulls_.pop_front();
    SendNow(std::move(pull), turn);
  }
}

// Sends a pull, or queues it until a limit of bytes allows it.  Pulls that wait for a version and
// pulls that are answered at once have a limit each, so that neither kind can hold up the other.
// A pull beyond the first limit waits until a request with NO_BODY reports its version.  The pull
// then counts against the second limit.
void ServerLink::SendOrDelay(Outgoing pull, const LinkTurn& turn) {
  const Message& message = pull.message;
  if (message.type != Type::kPull || pull.purpose != Purpose::kOp) {
    return SendNow(std::move(pull), turn);
  }
  const bool is_of_cut = (message.flags & kOfCut) != 0;
  KnownChunk* const known =
      is_of_cut ? nullptr : turn.chunks->ChunkOf(message.key, message.chunk).chunk;
  if (known == nullptr && !is_of_cut) return SendNow(std::move(pull), turn);
  if (known != nullptr && known->queued_pushes > 0) {  // the pull has to see that push
    return pushes_.push_back(std::move(pull));
  }
  if (pull.pull_bytes == 0 || (known != nullptr && known->unbounded)) {
    return SendNow(std::move(pull), turn);
  }
  if (known != nullptr && message.number > known->version) {
    if (CountPull(Outgoing::Pulled::kWaiting, &waiting_pull_bytes_, &pull, turn)) {
      return SendNow(std::move(pull), turn);
    }
    const KeyId key = message.key;
    const uint32_t chunk = message.chunk;
    const uint64_t version = message.number;
    asking_pulls_[{key, chunk}].push_back(std::move(pull));
    return turn.chunks->AskFor(key, chunk, version);
  }
  if (ready_pulls_.empty() &&
      CountPull(Outgoing::Pulled::kReady, &ready_pull_bytes_, &pull, turn)) {
    return SendNow(std::move(pull), turn);
  }
  Insert(std::move(pull), &ready_pulls_);
}

// Returns true and counts the bytes of a pull if the limit allows it.
bool ServerLink::CountPull(Outgoing::Pulled as, size_t* used, Outgoing* pull,
                           const LinkTurn& turn) {
  if (*used > 0 && *used + pull->pull_bytes > turn.limits.pull_bytes_max) return false;
  *used += pull->pull_bytes;
  pull->pulled = as;
  return true;
}

void ServerLink::ReleasePulls(const KeyId& key, uint32_t chunk) {
  const auto found = asking_pulls_.find({key, chunk});
  if (found == asking_pulls_.end()) return;
  for (Outgoing& pull : found->second) Insert(std::move(pull), &pulls_);
  asking_pulls_.erase(found);
}

void ServerLink::SendNow(Outgoing outgoing, const LinkTurn& turn) {
  Message& message = outgoing.message;
  message.seq = next_seq_++;
  if (IsMutating(message.type)) {
    mutating_.push_back(message.seq);
    unaccepted_bytes_ += message.body.size;
  }
  SetNeed(turn.chunks->ChunkOf(message.key, message.chunk), outgoing.purpose, turn.role, &message);
  if (sent_.empty()) {  // from now on the server owes an answer
    last_heard_ = turn.now;
    next_ping_ = turn.now + turn.limits.ping_after;
    turn.Rearm(next_ping_);
  }
  turn.effects->Send(link_, message);
  sent_.emplace(message.seq, std::move(outgoing));
}

// Sets the condition under which the server takes the message.  An asynchronous push needs the push
// before it, and a worker's pull that asks for no round needs the last push.  A barrier's push has
// the number of its store there.  Every other message names the birth of its key: a worker that has
// missed a delete then gets an error.
void ServerLink::SetNeed(KnownChunks::Found found, Purpose purpose, Role role, Message* message) {
  const bool is_push = message->type == Type::kPush;
  const bool is_read = message->type == Type::kPull && purpose == Purpose::kOp;
  const bool is_of_cut = message->type == Type::kPull && (message->flags & kOfCut) != 0;
  if (found.chunk == nullptr || is_of_cut) return;
  if (!is_push && message->type != Type::kPull && message->type != Type::kAbstain) return;
  const bool is_of_barrier = is_push && (message->flags & kBarrierKey) != 0;
  const bool follows = is_push ? found.meta->mode == KeyMeta::Mode::kAsync
                               : is_read && role == Role::kWorker && !found.meta->exact_reads();
  if (follows) {
    message->need = found.chunk->last_push_seq;
  } else if (!is_of_barrier) {
    message->need = found.meta->birth;
    message->flags |= kOfBirth;
  }
  if (!is_push) return;
  found.chunk->last_push_seq = message->seq;
  Drop(&found.chunk->queued_pushes);
}

std::optional<Outgoing> ServerLink::Take(uint64_t seq) {
  const auto found = sent_.find(seq);
  if (found == sent_.end()) return std::nullopt;
  Outgoing sent = std::move(found->second);
  sent_.erase(found);
  Uncount(sent);
  return sent;
}

const Outgoing* ServerLink::FindSent(uint64_t seq) const {
  const auto found = sent_.find(seq);
  return found == sent_.end() ? nullptr : &found->second;
}

void ServerLink::Uncount(const Outgoing& sent) {
  if (IsMutating(sent.message.type)) Drop(&unaccepted_bytes_, sent.message.body.size);
  if (sent.pulled == Outgoing::Pulled::kWaiting) Drop(&waiting_pull_bytes_, sent.pull_bytes);
  if (sent.pulled == Outgoing::Pulled::kReady) Drop(&ready_pull_bytes_, sent.pull_bytes);
}

std::vector<Outgoing> ServerLink::TakeAll(size_t* sent_count) {
  std::vector<Outgoing> all;
  all.reserve(sent_.size());
  for (const uint64_t seq : SentWhere([](const Outgoing&) { return true; })) {
    all.push_back(std::move(sent_.at(seq)));
  }
  if (sent_count != nullptr) *sent_count = all.size();
  ForEachQueued([&](const Outgoing& waiting) { all.push_back(waiting); });
  pushes_.clear();
  pulls_.clear();
  ready_pulls_.clear();
  asking_pulls_.clear();
  sent_.clear();
  mutating_.clear();
  unaccepted_bytes_ = waiting_pull_bytes_ = ready_pull_bytes_ = 0;
  return all;
}

Error CannotSaveRows(uint32_t server) {
  return Error(Code::kUnimplemented,
               Format("server {} cannot save or load keys that are kept by rows; upgrade tensorkv "
                      "where it runs",
                      server));
}

}  // namespace tkv
