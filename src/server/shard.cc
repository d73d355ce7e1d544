#include "server/shard.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"

namespace tkv {
namespace {

constexpr size_t kControlItemsMax = size_t{1} << 24;

bool SameSession(const SessionId& a, const SessionId& b) { return a == b; }

}  // namespace

uint64_t Shard::Key::AbstainOf(Rank rank) const {
  for (const auto& [r, upto] : abstain) {
    if (r == rank) return upto;
  }
  return 0;
}

Shard::Shard(ShardOptions options, BufferPool* pool)
    : options_(std::move(options)), worker_(pool, options_.adopt_from_bytes) {}

const Chunk* Shard::FindChunk(const ChunkId& id) const {
  const auto found = chunks_.find(id);
  return found == chunks_.end() ? nullptr : &found->second;
}

const Shard::Key* Shard::FindKey(const KeyId& id) const {
  const auto found = keys_.find(id);
  return found == keys_.end() ? nullptr : &found->second;
}

Shard::Memory Shard::MemoryUse() const {
  Memory memory;
  for (const auto& [id, chunk] : chunks_) {
    memory.values += chunk.value.size;
    for (const Block& state : chunk.states) memory.state += state.size;
    memory.state += chunk.master.size;
    for (const Round& round : chunk.rounds) memory.sums += round.sum.size;
  }
  memory.held = held_bytes_;
  return memory;
}

// ---- membership and sessions --------------------------------------------------------------------

Session* Shard::SessionOf(LinkId link) {
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : &sessions_.at(found->second);
}

bool Shard::Lists(const Hello& hello) const {
  if (hello.role == Role::kObserver) return true;
  if (hello.rank < 0 || static_cast<size_t>(hello.rank) >= epoch_.workers.size()) return false;
  const Epoch::Member& member = epoch_.workers[static_cast<size_t>(hello.rank)];
  return member.incarnation == hello.incarnation && member.state == Epoch::State::kAlive;
}

bool Shard::IsOver(Role role, const SessionId& id) const {
  if (role == Role::kObserver || id.rank < 0) return false;
  if (static_cast<size_t>(id.rank) >= epoch_.workers.size()) return false;
  const Epoch::Member& member = epoch_.workers[static_cast<size_t>(id.rank)];
  return member.incarnation > id.incarnation ||
         (member.incarnation == id.incarnation &&
          (member.state == Epoch::State::kDead || member.state == Epoch::State::kLeft));
}

void Shard::OnHello(LinkId link, const Message& message, Effects* effects) {
  Hello hello;
  try {
    hello = DecodeHello(message.extra);
  } catch (const Error& error) {
    return effects->Close(link, error.code(), format("HELLO: {}", error.what()));
  }
  if (hello.job != options_.job) {
    return effects->Close(link, Code::kUnauthenticated,
                          format("HELLO: job '{}', this is '{}'", hello.job, options_.job));
  }
  if (hello.role == Role::kServer || hello.incarnation == 0 ||
      (hello.role == Role::kWorker) != (hello.rank != kNoRank)) {
    return effects->Close(link, Code::kInvalidArgument, "HELLO: not a worker and not an observer");
  }
  const SessionId id{hello.rank, hello.incarnation};
  if (IsOver(hello.role, id)) {
    return effects->Close(
        link, Code::kAborted,
        format("HELLO: worker {} incarnation {} is over", id.rank, id.incarnation));
  }
  if (incarnation_ == 0 || !Lists(hello)) {  // the EPOCH that lists it is on its way
    hellos_[link] = {message, hello};
    return;
  }
  AdmitSession(link, hello, effects);
}

void Shard::AdmitSession(LinkId link, const Hello& hello, Effects* effects) {
  const SessionId id{hello.rank, hello.incarnation};
  const auto [at, is_new] = sessions_.try_emplace(id);
  Session& session = at->second;
  session.id = id;
  session.role = hello.role;
  if (session.link != kNoLink && session.link != link) {
    links_.erase(session.link);
    effects->Close(session.link, Code::kCancelled, "another connection has taken over");
  }
  if (!is_new) Unpark(id);
  session.link = link;
  links_[link] = id;
  Welcome welcome;
  welcome.server_incarnation = incarnation_;
  welcome.resumed = !is_new;
  welcome.credit_bytes =
      std::max(options_.credit_min_bytes,
               options_.credit_budget_bytes / std::max<size_t>(1, epoch_.workers.size()));
  welcome.rank = id.rank;
  welcome.incarnation = id.incarnation;
  Message reply;
  reply.type = Type::kWelcome;
  reply.extra = Encode(welcome);
  effects->Send(link, std::move(reply));
}

// Forgets what the session waits for.
void Shard::Unpark(const SessionId& id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.parked == 0) return;
  for (auto& [chunk_id, chunk] : chunks_) {
    std::erase_if(chunk.parked, [&](const ParkedPull& pull) { return pull.session == id; });
  }
  std::erase_if(describes_, [&](const WaitingDescribe& d) { return d.session == id; });
  found->second.parked = 0;
}

void Shard::Closed(LinkId link) {
  hellos_.erase(link);
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  Session& session = sessions_.at(found->second);
  Unpark(session.id);
  session.link = kNoLink;
  const bool is_observer = session.role == Role::kObserver;
  if (is_observer) sessions_.erase(found->second);
  links_.erase(found);
}

void Shard::On(const Epoch& epoch, Effects* effects) {
  if (epoch.number <= epoch_.number) return;
  epoch_ = epoch;
  member_count_ = 0;
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    member_count_ += static_cast<size_t>(epoch_.IsMember(rank));
  }
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    Session& session = at->second;
    if (!IsOver(session.role, session.id)) {
      ++at;
      continue;
    }
    const bool left =
        epoch_.workers[static_cast<size_t>(session.id.rank)].state == Epoch::State::kLeft &&
        epoch_.workers[static_cast<size_t>(session.id.rank)].incarnation == session.id.incarnation;
    Unpark(session.id);
    if (session.link != kNoLink) {
      links_.erase(session.link);
      if (left) {
        effects->Close(session.link, Code::kCancelled, "the worker has left");
      } else {
        effects->Close(session.link, Code::kAborted,
                       format("worker {}: this life is over (incarnation {})", session.id.rank,
                              session.id.incarnation));
      }
    }
    DropRules(session.id.rank, session.id.incarnation,
              epoch_.CommittedBy(session.id.rank, session.id.incarnation));
    at = sessions_.erase(at);
  }
  for (auto at = hellos_.begin(); at != hellos_.end();) {
    const auto [link, waiting] = *at;
    const SessionId id{waiting.hello.rank, waiting.hello.incarnation};
    if (IsOver(waiting.hello.role, id)) {
      effects->Close(link, Code::kAborted,
                     format("HELLO: worker {} incarnation {} is over", id.rank, id.incarnation));
    } else if (incarnation_ != 0 && Lists(waiting.hello)) {
      AdmitSession(link, waiting.hello, effects);
    } else {
      ++at;
      continue;
    }
    at = hellos_.erase(at);
  }
  RecheckDescribes(effects);
  for (auto& [id, chunk] : chunks_) {
    Key& key = keys_.at(id.key);
    CompleteRounds(id, &key, &chunk, effects);
    AnswerParked(id, &key, &chunk, effects);
  }
}

// ---- judging ------------------------------------------------------------------------------------

void Shard::Header(LinkId link, uint64_t low) {
  if (Session* const session = SessionOf(link)) session->Raise(low);
}

bool Shard::Admit(LinkId link, const Message& message) {
  const Session* const session = SessionOf(link);
  if (session == nullptr || session->role != Role::kWorker) return false;
  switch (message.type) {
    case Type::kPush: {
      const Chunk* const chunk = FindChunk(message.chunk_id());
      return chunk != nullptr && chunk->bytes() == message.body.size;
    }
    case Type::kInit:
      return message.body.size <= options_.chunk_bytes_max;
    case Type::kControl:
      return message.body.size <= kControlItemsMax * sizeof(ControlRounds::Item);
    default:
      return false;
  }
}

void Shard::Violation(Session* session, const Message& message, std::string reason,
                      Effects* effects) {
  effects->Log(Level::kWarning, format("worker {}: {}: {}; its session is closed", session->id.rank,
                                       Name(message.type), reason));
  effects->Close(session->link, Code::kInvalidArgument,
                 format("{}: {}", Name(message.type), reason));
  const LinkId link = session->link;
  Closed(link);
}

void Shard::Received(LinkId link, Message message, Effects* effects) {
  if (message.type == Type::kHello) {
    Session* const known = SessionOf(link);
    if (known == nullptr) return OnHello(link, message, effects);
    return;  // a repetition on a link that has been welcomed
  }
  if (message.type == Type::kError) return;  // the client says why it closes the link
  Session* const session = SessionOf(link);
  if (session == nullptr) {
    if (hellos_.contains(link)) return;  // it will be sent again after WELCOME
    return effects->Close(link, Code::kUnauthenticated,
                          format("{}: HELLO comes first", Name(message.type)));
  }
  Judge(session, std::move(message), effects);
}

void Shard::Judge(Session* session, Message message, Effects* effects) {
  if (!IsMutating(message.type)) return Execute(session, std::move(message), effects);
  if (session->role != Role::kWorker) {
    return Violation(session, message, "an observer only reads", effects);
  }
  if (message.seq < session->low) return;  // answered long ago
  if (const Session::Result* const result = session->Find(message.seq)) {
    if (!result->done) return;
    tkv::Message again = Reply(message, result->type, result->number);
    again.extra = result->extra;
    effects->Send(session->link, std::move(again));
    return;
  }
  if (message.seq >= session->low + Session::kWindow) {
    return Violation(session, message,
                     format("operation {} is beyond the window [{}, {})", message.seq, session->low,
                            session->low + Session::kWindow),
                     effects);
  }
  session->Begin(message.seq);
  Execute(session, std::move(message), effects);
}

void Shard::Execute(Session* session, Message message, Effects* effects) {
  switch (message.type) {
    case Type::kPush:
      return OnPush(session, std::move(message), effects);
    case Type::kPull:
      return OnPull(session, message, effects);
    case Type::kInit:
      return OnInit(session, std::move(message), effects);
    case Type::kDescribe:
      return OnDescribe(session, std::move(message), effects);
    case Type::kStatus:
      return OnStatus(session, message, effects);
    case Type::kCancel:
      return OnCancel(session, message, effects);
    case Type::kControl:
      return OnControl(session, message, effects);
    case Type::kWithdraw:
      return OnWithdraw(session, message, effects);
    case Type::kAbstain:
      return OnAbstain(session, message, effects);
    case Type::kDelete:
      return OnDelete(session, message, effects);
    case Type::kPing:
      return effects->Send(session->link, Reply(message, Type::kPong));
    default:
      Violation(session, message, "a server does not take it", effects);
  }
}

void Shard::Answer(Session* session, const Message& request, Message reply, Effects* effects) {
  if (IsMutating(request.type)) session->Finish(request.seq, reply);
  if (session->link != kNoLink) effects->Send(session->link, std::move(reply));
  if (!session->waiting.empty()) RunWaiting(session, effects);
}

void Shard::AnswerError(Session* session, const Message& request, Code code, std::string text,
                        Effects* effects) {
  Answer(session, request, ErrorReply(request.seq, code, std::move(text)), effects);
}

// Async pushes whose predecessor is done now.
void Shard::RunWaiting(Session* session, Effects* effects) {
  for (size_t i = 0; i < session->waiting.size(); ++i) {
    if (!session->IsDone(session->waiting[i].need)) continue;
    Message message = std::move(session->waiting[i]);
    session->waiting.erase(session->waiting.begin() + static_cast<ptrdiff_t>(i));
    return Execute(session, std::move(message), effects);  // which comes back here
  }
}

// ---- keys ---------------------------------------------------------------------------------------

void Shard::OnInit(Session* session, Message message, Effects* effects) {
  KeyMeta meta;
  try {
    meta = DecodeKeyMeta(message.extra);
  } catch (const Error& error) {
    return Violation(session, message, error.what(), effects);
  }
  if (IdOf(meta.name) != message.key || message.chunk >= meta.chunk_count() ||
      message.body.size != meta.bytes_of(message.chunk) ||
      ShardOf(message.key, message.chunk, static_cast<uint32_t>(epoch_.servers.size())) !=
          options_.index) {
    return Violation(session, message, "this chunk does not belong to this key and server",
                     effects);
  }
  if (message.body.size > 0 && !message.body) {
    return AnswerError(session, message, Code::kResourceExhausted,
                       format("a chunk of {} bytes, at most {} are allowed", message.body.size,
                              options_.chunk_bytes_max),
                       effects);
  }
  if (session->id.rank != 0) {
    return AnswerError(session, message, Code::kFailedPrecondition, "rank 0 creates keys", effects);
  }
  auto key = keys_.find(message.key);
  auto chunk = chunks_.find(message.chunk_id());
  const bool overwrite = (message.flags & kOverwrite) != 0;
  if (key != keys_.end() && key->second.meta.name != meta.name) {
    return AnswerError(session, message, Code::kAlreadyExists,
                       format("the id is taken by {}", ShownKey(key->second.meta.name)), effects);
  }
  const auto replaceable = [&](const Chunk& old) {
    return overwrite && old.author <= session->id.incarnation && old.version == 0 &&
           old.rounds.empty();
  };
  if (chunk != chunks_.end() && !replaceable(chunk->second)) {
    Message reply = Reply(message, Type::kExists);
    reply.extra = Encode(key->second.meta);
    return Answer(session, message, std::move(reply), effects);
  }
  if (key != keys_.end() && key->second.meta != meta) {
    const auto& old = key->second.chunks;
    if (!std::all_of(old.begin(), old.end(),
                     [&](uint32_t c) { return replaceable(chunks_.at({message.key, c})); })) {
      Message reply = Reply(message, Type::kExists);
      reply.extra = Encode(key->second.meta);
      return Answer(session, message, std::move(reply), effects);
    }
    for (const uint32_t c : old) chunks_.erase({message.key, c});
    keys_.erase(key);
    key = keys_.end();
  }
  Chunk fresh;
  fresh.elements = meta.elements_of(message.chunk);
  fresh.dtype = meta.dtype;
  fresh.author = session->id.incarnation;
  try {
    worker_.Start(&fresh, std::move(message.body));
  } catch (const Error& error) {
    return AnswerError(session, message, error.code(), error.what(), effects);
  }
  if (key == keys_.end()) {
    key = keys_.emplace(message.key, Key{}).first;
    key->second.meta = std::move(meta);
    // A key made after a CONTROL for all keys takes it from its first round on.
    for (const RulePtr& rule : all_) key->second.pending.push_back({++control_count_, 0, rule});
  }
  auto& chunks = key->second.chunks;
  if (std::find(chunks.begin(), chunks.end(), message.chunk) == chunks.end()) {
    chunks.push_back(message.chunk);
  }
  chunks_[message.chunk_id()] = std::move(fresh);
  Answer(session, message, Reply(message, Type::kOk), effects);
  if (message.chunk == 0) RecheckDescribes(effects);
}

void Shard::OnDescribe(Session* session, Message message, Effects* effects) {
  std::erase_if(describes_, [&](const WaitingDescribe& waiting) {
    const bool same = waiting.session == session->id && waiting.request.seq == message.seq;
    if (same) --session->parked;
    return same;
  });
  if (session->parked >= options_.parked_max) {
    return Violation(session, message, format("{} operations wait", session->parked), effects);
  }
  ++session->parked;
  describes_.push_back({session->id, std::move(message)});
  RecheckDescribes(effects);
}

void Shard::RecheckDescribes(Effects* effects) {
  std::vector<WaitingDescribe> waiting = std::move(describes_);
  describes_.clear();
  for (WaitingDescribe& describe : waiting) {
    Session& session = sessions_.at(describe.session);
    const Message& request = describe.request;
    const bool creator_is_gone =
        !epoch_.workers.empty() && (epoch_.IsGone(0) || !epoch_.IsMember(0));
    Message reply;
    if (chunks_.contains({request.key, 0})) {
      reply = Reply(request, Type::kMeta);
      reply.extra = Encode(keys_.at(request.key).meta);
    } else if ((request.flags & kNoWait) != 0) {
      reply = ErrorReply(request.seq, Code::kNotFound, "no such key");
    } else if (creator_is_gone) {
      reply = ErrorReply(
          request.seq, Code::kUnavailable,
          format("worker 0, which creates keys, {}",
                 epoch_.workers[0].state == Epoch::State::kLeft ? "has left" : "is dead"));
    } else {
      describes_.push_back(std::move(describe));
      continue;
    }
    --session.parked;
    if (session.link != kNoLink) effects->Send(session.link, std::move(reply));
  }
}

void Shard::OnDelete(Session* session, const Message& message, Effects* effects) {
  if (session->id.rank != 0) {
    return AnswerError(session, message, Code::kFailedPrecondition, "rank 0 deletes keys", effects);
  }
  const auto key = keys_.find(message.key);
  if (key != keys_.end()) {
    for (const uint32_t c : key->second.chunks) {
      Chunk& chunk = chunks_.at({message.key, c});
      for (const ParkedPull& pull : chunk.parked) {
        Session& waiting = sessions_.at(pull.session);
        --waiting.parked;
        if (waiting.link == kNoLink) continue;
        effects->Send(waiting.link,
                      ErrorReply(pull.seq, Code::kNotFound, "the key has been deleted"));
      }
      for (const Round& round : chunk.rounds) {
        for (const auto& [rank, body] : round.held) held_bytes_ -= body.size;
      }
      chunks_.erase({message.key, c});
    }
    keys_.erase(key);
  }
  Answer(session, message, Reply(message, Type::kOk), effects);
}

// ---- pushes -------------------------------------------------------------------------------------

void Shard::OnPush(Session* session, Message message, Effects* effects) {
  auto key = keys_.find(message.key);
  if ((message.flags & kBarrierKey) != 0 && key == keys_.end()) {
    if (message.body.size != 0 || message.chunk != 0) {
      return Violation(session, message, "a barrier has one chunk of no bytes", effects);
    }
    Key barrier;
    barrier.is_barrier = true;
    barrier.meta.name = InternalKey(0, "barrier");
    barrier.meta.shape = Shape({0});
    barrier.chunks = {0};
    key = keys_.emplace(message.key, std::move(barrier)).first;
    chunks_[{message.key, 0}].dtype = DType::kF32;
  }
  const auto found = chunks_.find(message.chunk_id());
  if (key == keys_.end() || found == chunks_.end()) {
    return AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  Chunk& chunk = found->second;
  if (message.dtype != chunk.dtype || message.body.size != chunk.bytes() ||
      (message.body.size > 0 && !message.body)) {
    return Violation(session, message,
                     format("{} bytes of {}, the chunk has {} of {}", message.body.size,
                            Name(message.dtype), chunk.bytes(), Name(chunk.dtype)),
                     effects);
  }
  std::vector<double> scalars;
  if ((message.flags & kHasScalars) != 0) {
    try {
      scalars = DecodeScalars(message.extra);
    } catch (const Error& error) {
      return Violation(session, message, error.what(), effects);
    }
  }
  if (key->second.meta.mode == KeyMeta::Mode::kAsync) {
    return OnPushAsync(session, std::move(message), &key->second, &chunk, scalars, effects);
  }
  OnPushSync(session, std::move(message), &key->second, &chunk, std::move(scalars), effects);
}

void Shard::OnPushSync(Session* session, Message message, Key* key, Chunk* chunk,
                       std::vector<double> scalars, Effects* effects) {
  const Rank rank = session->id.rank;
  const uint64_t round = message.number;
  const ChunkId id = message.chunk_id();
  if (round <= chunk->version || chunk->HasArrived(round, rank)) {  // a duplicate
    return Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
  }
  if (round > chunk->version + 1 + key->meta.staleness) {
    return Violation(session, message,
                     format("round {} of {}, version {} is the newest", round,
                            ShownKey(key->meta.name), chunk->version),
                     effects);
  }
  const size_t index = static_cast<size_t>(round - chunk->version - 1);
  const bool deterministic = key->meta.deterministic;
  if (deterministic && held_bytes_ + message.body.size > options_.hold_bytes_max) {
    return AnswerError(session, message, Code::kResourceExhausted,
                       format("{} bytes of pushes are held, at most {} are allowed", held_bytes_,
                              options_.hold_bytes_max),
                       effects);
  }
  Bytes body = std::move(message.body);
  message.body = {};
  try {
    if (index == 0 && !deterministic && IsComplete(*key, *chunk, rank)) {
      ApplyControls(key, chunk);
      worker_.ContributeLast(chunk, rank, std::move(body), std::move(scalars));
      if (listener_ != nullptr) listener_->Completed(*this, id, *chunk);
      Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
      AnswerParked(id, key, chunk, effects);
    } else {
      const size_t bytes = body.size;
      worker_.Contribute(chunk, index, rank, std::move(body), std::move(scalars), deterministic);
      if (deterministic) held_bytes_ += bytes;
      Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
    }
  } catch (const Error& error) {
    return AnswerError(session, message, error.code(), error.what(), effects);
  }
  CompleteRounds(id, key, chunk, effects);
}

void Shard::OnPushAsync(Session* session, Message message, Key* key, Chunk* chunk,
                        const std::vector<double>& scalars, Effects* effects) {
  if (message.need != 0 && !session->IsDone(message.need)) {
    size_t bytes = message.body.size;
    for (const Message& other : session->waiting) bytes += other.body.size;
    if (bytes > options_.credit_budget_bytes + options_.credit_min_bytes) {
      return Violation(session, message, format("{} bytes wait for their turn", bytes), effects);
    }
    session->waiting.push_back(std::move(message));
    return;
  }
  const ChunkId id = message.chunk_id();
  Bytes body = std::move(message.body);
  message.body = {};
  try {
    ApplyControls(key, chunk);
    worker_.Apply(chunk, std::move(body), scalars);
  } catch (const Error& error) {
    AnswerError(session, message, error.code(), error.what(), effects);
    return AnswerParked(id, key, chunk, effects);
  }
  if (listener_ != nullptr) listener_->Completed(*this, id, *chunk);
  Answer(session, message, Reply(message, Type::kAccepted, chunk->version), effects);
  AnswerParked(id, key, chunk, effects);
}

// Whether round version + 1 has all it needs; `arriving` counts as arrived.
bool Shard::IsComplete(const Key& key, const Chunk& chunk, Rank arriving) const {
  const uint64_t round = chunk.version + 1;
  const size_t count = (chunk.rounds.empty() ? 0 : chunk.rounds.front().count) +
                       static_cast<size_t>(arriving != kNoRank);
  if (count + key.abstain.size() < member_count_) return false;
  bool any = count > 0;
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    if (!epoch_.IsMember(rank)) continue;
    if (key.AbstainOf(rank) >= round) {
      any = true;
    } else if (rank != arriving && !chunk.HasArrived(round, rank)) {
      return false;
    }
  }
  return any;
}

void Shard::CompleteRounds(const ChunkId& id, Key* key, Chunk* chunk, Effects* effects) {
  if (key->meta.mode == KeyMeta::Mode::kAsync) return;
  while (IsComplete(*key, *chunk, kNoRank)) {
    ApplyControls(key, chunk);
    if (!chunk->rounds.empty()) {
      for (const auto& [rank, body] : chunk->rounds.front().held) held_bytes_ -= body.size;
    }
    worker_.Complete(chunk);
    if (listener_ != nullptr) listener_->Completed(*this, id, *chunk);
    AnswerParked(id, key, chunk, effects);
  }
}

// ---- pulls --------------------------------------------------------------------------------------

bool Shard::CanAnswer(const Chunk& chunk, const ParkedPull& pull, const Session& session) const {
  return chunk.version >= pull.min_version && (pull.need == 0 || session.IsDone(pull.need));
}

void Shard::SendValue(Session* session, const ChunkId& id, const Chunk& chunk,
                      const ParkedPull& pull, Effects* effects) {
  if (session->link == kNoLink) return;
  if (chunk.failure && pull.min_version == chunk.version) {
    return effects->Send(session->link,
                         ErrorReply(pull.seq, chunk.failure->code(), chunk.failure->what()));
  }
  Message reply;
  reply.type = Type::kValue;
  reply.dtype = chunk.dtype;
  reply.chunk = id.chunk;
  reply.key = id.key;
  reply.number = chunk.version;
  reply.seq = pull.seq;
  if (pull.no_body) {
    reply.flags = kNoBody;
  } else {
    reply.body = chunk.value.bytes();
  }
  effects->Send(session->link, std::move(reply));
}

void Shard::OnPull(Session* session, const Message& message, Effects* effects) {
  const auto key = keys_.find(message.key);
  const auto found = chunks_.find(message.chunk_id());
  if (key == keys_.end() || found == chunks_.end()) {
    return AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  Chunk& chunk = found->second;
  const bool is_observer = session->role == Role::kObserver;
  if (is_observer && message.need != key->second.meta.birth) {
    return AnswerError(session, message, Code::kNotFound, "the key has been made anew", effects);
  }
  const ParkedPull pull{session->id, message.seq, message.number, is_observer ? 0 : message.need,
                        (message.flags & kNoBody) != 0};
  std::erase_if(chunk.parked, [&](const ParkedPull& old) {  // the same one, sent again
    const bool same = SameSession(old.session, pull.session) && old.seq == pull.seq;
    if (same) --session->parked;
    return same;
  });
  if (CanAnswer(chunk, pull, *session)) {
    return SendValue(session, message.chunk_id(), chunk, pull, effects);
  }
  if (const std::string why = WhyNever(key->second, chunk, pull); !why.empty()) {
    return AnswerError(session, message, Code::kUnavailable, why, effects);
  }
  if (session->parked >= options_.parked_max) {
    return Violation(session, message, format("{} operations wait", session->parked), effects);
  }
  ++session->parked;
  chunk.parked.push_back(pull);
}

// Why a pull waits for a round that cannot come; empty where it can.
std::string Shard::WhyNever(const Key& key, const Chunk& chunk, const ParkedPull& pull) const {
  if (pull.min_version <= chunk.version || key.meta.mode == KeyMeta::Mode::kAsync) return {};
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    if (!epoch_.IsMember(rank) || !epoch_.IsGone(rank)) continue;
    const uint64_t covered = std::max(key.AbstainOf(rank), chunk.LastArrived(rank));
    if (covered >= pull.min_version) continue;
    if (epoch_.workers[static_cast<size_t>(rank)].state == Epoch::State::kLeft) {
      return format("worker {} left after round {}; round {} needs it", rank, covered, covered + 1);
    }
    return format("worker {} is dead; round {} needs it", rank, covered + 1);
  }
  return {};
}

void Shard::AnswerParked(const ChunkId& id, Key* key, Chunk* chunk, Effects* effects) {
  std::erase_if(chunk->parked, [&](const ParkedPull& pull) {
    Session& session = sessions_.at(pull.session);
    if (CanAnswer(*chunk, pull, session)) {
      --session.parked;
      SendValue(&session, id, *chunk, pull, effects);
      return true;
    }
    const std::string why = WhyNever(*key, *chunk, pull);
    if (why.empty()) return false;
    --session.parked;
    if (session.link != kNoLink) {
      effects->Send(session.link, ErrorReply(pull.seq, Code::kUnavailable, why));
    }
    return true;
  });
}

ChunkStatus Shard::StatusOf(const Key& key, const Chunk& chunk, Rank rank) const {
  ChunkStatus status;
  status.version = chunk.version;
  status.last_arrived = rank == kNoRank ? chunk.version : chunk.LastArrived(rank);
  if (key.meta.mode == KeyMeta::Mode::kAsync) return status;
  for (Rank r = 0; static_cast<size_t>(r) < epoch_.workers.size(); ++r) {
    if (epoch_.IsMember(r) && key.AbstainOf(r) <= chunk.version &&
        !chunk.HasArrived(chunk.version + 1, r)) {
      status.missing.push_back(r);
    }
  }
  return status;
}

void Shard::OnStatus(Session* session, const Message& message, Effects* effects) {
  const auto key = keys_.find(message.key);
  const auto chunk = chunks_.find(message.chunk_id());
  if (key == keys_.end() || chunk == chunks_.end()) {
    return AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  const ChunkStatus status = StatusOf(key->second, chunk->second, session->id.rank);
  Message reply = Reply(message, Type::kStatusReply, status.version);
  reply.extra = Encode(status);
  effects->Send(session->link, std::move(reply));
}

// The key and chunk are those of the pull, so that nothing has to be searched.
void Shard::OnCancel(Session* session, const Message& message, Effects* effects) {
  Message reply = Reply(message, Type::kOk);
  const auto cancelled = [&](const SessionId& owner, uint64_t seq) {
    const bool same = SameSession(owner, session->id) && seq == message.number;
    if (same) --session->parked;
    return same;
  };
  const auto key = keys_.find(message.key);
  const auto chunk = chunks_.find(message.chunk_id());
  if (key != keys_.end() && chunk != chunks_.end()) {
    reply.extra = Encode(StatusOf(key->second, chunk->second, session->id.rank));
    std::erase_if(chunk->second.parked,
                  [&](const ParkedPull& pull) { return cancelled(pull.session, pull.seq); });
  }
  std::erase_if(describes_, [&](const WaitingDescribe& waiting) {
    return cancelled(waiting.session, waiting.request.seq);
  });
  effects->Send(session->link, std::move(reply));
}

// ---- rules --------------------------------------------------------------------------------------

void Shard::OnControl(Session* session, const Message& message, Effects* effects) {
  const size_t item_bytes = sizeof(ControlRounds::Item);
  if (message.body.size % item_bytes != 0 || (message.body.size > 0 && !message.body)) {
    return Violation(session, message, format("a body of {} bytes", message.body.size), effects);
  }
  RulePtr rule;
  try {
    rule = std::make_shared<Rule>(session->id.rank, session->id.incarnation, message.number,
                                  DecodeUpdateSpec(message.extra));
  } catch (const Error& error) {
    return AnswerError(session, message, error.code(), error.what(), effects);
  }
  boost::unordered_flat_map<KeyId, uint64_t> from_rounds;
  for (size_t i = 0; i < message.body.size / item_bytes; ++i) {
    ControlRounds::Item item;
    std::memcpy(&item, message.body.data + i * item_bytes, item_bytes);
    from_rounds[item.key] = item.from_round;
  }
  // A sender that sends its next one has committed its last one: what came before that matters no
  // more to keys made later.
  const auto last = std::find_if(all_.rbegin(), all_.rend(), [&](const RulePtr& old) {
    return old->SentBy(rule->sender(), rule->incarnation());
  });
  if (last != all_.rend()) all_.erase(all_.begin(), last.base() - 1);
  all_.push_back(rule);
  for (auto& [id, key] : keys_) {
    if (key.is_barrier) continue;
    const auto from = from_rounds.find(id);
    key.pending.push_back({++control_count_, from == from_rounds.end() ? 0 : from->second, rule});
  }
  Answer(session, message, Reply(message, Type::kOk), effects);
}

void Shard::OnWithdraw(Session* session, const Message& message, Effects* effects) {
  DropRules(session->id.rank, session->id.incarnation, message.number - 1);
  Answer(session, message, Reply(message, Type::kOk), effects);
}

// Drops what a life has sent after `after_generation`.
void Shard::DropRules(Rank rank, uint64_t incarnation, uint64_t after_generation) {
  const auto is_dropped = [&](const RulePtr& rule) {
    return rule->SentBy(rank, incarnation) && rule->generation() > after_generation;
  };
  std::erase_if(all_, is_dropped);
  for (auto& [id, key] : keys_) {
    std::erase_if(key.pending,
                  [&](const Key::Pending& pending) { return is_dropped(pending.rule); });
  }
}

// Those that are due at the next round of this chunk, in the order of arrival; a later one replaces
// an earlier one that was to come into force after it.
void Shard::ApplyControls(Key* key, Chunk* chunk) {
  if (key->pending.empty()) return;
  for (const Key::Pending& pending : key->pending) {
    if (pending.number <= chunk->control) continue;
    if (pending.from_round > chunk->version + 1 && key->meta.mode == KeyMeta::Mode::kSync) continue;
    worker_.SetRule(chunk, pending.rule);
    chunk->control = pending.number;
  }
  const auto applied_everywhere = [&](const Key::Pending& pending) {
    return std::all_of(key->chunks.begin(), key->chunks.end(), [&](uint32_t c) {
      const auto other = chunks_.find({IdOf(key->meta.name), c});
      return other == chunks_.end() || other->second.control >= pending.number;
    });
  };
  while (!key->pending.empty() && applied_everywhere(key->pending.front())) {
    key->pending.erase(key->pending.begin());
  }
}

void Shard::OnAbstain(Session* session, const Message& message, Effects* effects) {
  const auto found = keys_.find(message.key);
  if (found == keys_.end()) {
    return AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  Key& key = found->second;
  const Rank rank = session->id.rank;
  const auto at = std::find_if(key.abstain.begin(), key.abstain.end(),
                               [&](const auto& entry) { return entry.first == rank; });
  if (at == key.abstain.end()) {
    key.abstain.emplace_back(rank, message.number);
  } else {
    at->second = std::max(at->second, message.number);
  }
  Answer(session, message, Reply(message, Type::kOk), effects);
  for (const uint32_t c : key.chunks) {
    const ChunkId id{message.key, c};
    CompleteRounds(id, &key, &chunks_.at(id), effects);
  }
}

// ---- coverage -----------------------------------------------------------------------------------

const char* Shard::StateFor(LinkId link, const Message& message) const {
  const auto found = links_.find(link);
  if (found == links_.end()) return hellos_.contains(link) ? "unwelcomed" : "stranger";
  const Session& session = sessions_.at(found->second);
  if (IsMutating(message.type)) {
    if (message.seq < session.low) return "answered";
    if (const auto* result = const_cast<Session&>(session).Find(message.seq)) {
      return result->done ? "done" : "waiting";
    }
  }
  const Chunk* const chunk = FindChunk(message.chunk_id());
  if (chunk == nullptr) return "no chunk";
  if (!chunk->rounds.empty()) return "round open";
  return chunk->version == 0 ? "fresh" : "round closed";
}

}  // namespace tkv
