#include "server/shard.h"

#include <algorithm>

#include "base/format.h"
#include "codec/codec.h"
#include "wire/hello.h"

namespace tkv {
namespace {

constexpr size_t kControlItemsMax = size_t{1} << 24;
constexpr Time kRefusalsEvery = 10 * kSecond;  // interval between log lines about refusals

}  // namespace

const std::shared_ptr<void>& NoMemory() {
  static const auto* const mark = new std::shared_ptr<void>(std::make_shared<char>());
  return *mark;
}

uint64_t Shard::Key::AbstainOf(Rank rank) const {
  for (const auto& [r, upto] : abstain) {
    if (r == rank) return upto;
  }
  return 0;
}

Shard::Shard(ShardOptions options, BufferPool* pool)
    : options_(std::move(options)), editor_(pool, options_.adopt_from_bytes, options_.disk) {}

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
    (chunk.value.by_rows() ? memory.rows : memory.values) += chunk.value.memory_bytes();
    for (const Block& state : chunk.states) memory.state += state.size;
    memory.state += chunk.master.size;
    if (chunk.former) {
      for (const Block& state : chunk.former->states) memory.state += state.size;
      memory.state += chunk.former->master.size;
    }
    for (const Round& round : chunk.rounds) memory.sums += round.sum.memory_bytes();
  }
  memory.held = held_bytes_;
  memory.cuts = CutBytes();
  return memory;
}

// Returns the bytes of the blocks that only cuts hold.  Chunks account for shared blocks.
size_t Shard::CutBytes() const {
  size_t bytes = 0;
  cuts_.ForEach([&](const ChunkId& id, const ChunkCut& cut) {
    std::set<const void*> shared;
    if (const Chunk* const chunk = FindChunk(id)) {
      shared = {chunk->value.Read().data, chunk->master.data};
      for (const Block& state : chunk->states) shared.insert(state.data);
      if (chunk->former) {
        shared.insert(chunk->former->master.data);
        for (const Block& state : chunk->former->states) shared.insert(state.data);
      }
    }
    const auto add = [&](const Bytes& part) {
      if (!shared.contains(part.data)) bytes += part.size;
    };
    add(cut.value.Read());
    add(cut.master.bytes());
    for (const Block& state : cut.states) add(state.bytes());
  });
  return bytes;
}

std::vector<SessionId> Shard::Miscounted() const {
  std::map<SessionId, size_t> waiting;
  for (const auto& [id, chunk] : chunks_) {
    for (const ParkedPull& pull : chunk.parked) ++waiting[pull.session];
  }
  for (const auto& [session, seq] : describes_.All()) ++waiting[session];
  std::vector<SessionId> wrong;
  for (const auto& [id, session] : sessions_.all()) {
    if (session.parked != waiting[id]) wrong.push_back(id);
  }
  return wrong;
}

// ---- membership and sessions --------------------------------------------------------------------

bool Shard::IsListed(const Hello& hello) const {
  if (hello.role == Role::kObserver) return true;
  if (hello.rank < 0 || static_cast<size_t>(hello.rank) >= epoch_.workers.size()) return false;
  const Epoch::Seat& seat = epoch_.workers[static_cast<size_t>(hello.rank)];
  return seat.incarnation == hello.incarnation && seat.state == Epoch::State::kAlive;
}

bool Shard::IsOver(Role role, const SessionId& id) const {
  if (role == Role::kObserver || id.rank < 0) return false;
  if (static_cast<size_t>(id.rank) >= epoch_.workers.size()) return false;
  const Epoch::Seat& seat = epoch_.workers[static_cast<size_t>(id.rank)];
  return seat.incarnation > id.incarnation || (seat.incarnation == id.incarnation && seat.IsOver());
}

void Shard::OnHello(LinkId link, const Message& message, Effects* effects) {
  const auto read = ReadHello(link, message, options_.job, options_.protocol,
                              Format("server {}", options_.index), effects);
  if (!read) return;
  const Hello& hello = *read;
  if (hello.role == Role::kServer || hello.incarnation == 0 ||
      (hello.role == Role::kWorker) != (hello.rank != kNoRank)) {
    return effects->Close(link, Code::kInvalidArgument, "HELLO: not a worker and not an observer");
  }
  const SessionId id{hello.rank, hello.incarnation};
  if (IsOver(hello.role, id)) {
    return effects->Close(
        link, Code::kAborted,
        Format("HELLO: worker {} incarnation {} is over", id.rank, id.incarnation));
  }
  if (incarnation_ == 0 || !IsListed(hello)) {  // the EPOCH that lists the sender is not here yet
    hellos_[link] = {message, hello};
    return;
  }
  AdmitSession(link, hello, effects);
}

void Shard::AdmitSession(LinkId link, const Hello& hello, Effects* effects) {
  const SessionId id{hello.rank, hello.incarnation};
  const SessionTable::Opened opened = sessions_.Open(id, hello.role, link);
  if (opened.replaced != kNoLink) {
    effects->Close(opened.replaced, Code::kCancelled, "another connection has taken over");
  }
  opened.session->end = Session::End::kNone;
  if (!opened.is_new) UnparkAll(opened.session);
  Welcome welcome;
  welcome.server_incarnation = incarnation_;
  welcome.resumed = !opened.is_new;
  welcome.credit_bytes =
      std::max(options_.credit_min_bytes,
               options_.credit_budget_bytes / std::max<size_t>(1, epoch_.workers.size()));
  welcome.rank = id.rank;
  welcome.incarnation = id.incarnation;
  welcome.rejoined = has_begun_;
  welcome.protocol = options_.protocol;
  Message reply;
  reply.type = Type::kWelcome;
  reply.extra = Encode(welcome);
  effects->Send(link, std::move(reply));
}

// Removes the waiting pulls and DESCRIBEs of a session.
void Shard::UnparkAll(Session* session) {
  if (session->parked == 0) return;
  for (auto& [chunk_id, chunk] : chunks_) {
    std::erase_if(chunk.parked,
                  [&](const ParkedPull& pull) { return pull.session == session->id; });
  }
  describes_.RemoveAllOf(session->id);
  session->parked = session->parked_bytes = 0;
}

// A worker that has said that it leaves may have ended before its link is seen to close.
void Shard::Ended(LinkId link) {
  Session* const session = sessions_.Of(link);
  if (session == nullptr || session->end == Session::End::kLeft) return;
  session->end = Session::End::kEnded;
}

// Returns the end of the newest incarnation of a rank, as far as it is known without the head.
Session::End Shard::EndOf(size_t rank) const {
  const SessionId id{static_cast<Rank>(rank), epoch_.workers[rank].incarnation};
  const Session* const session = sessions_.Find(id);
  return session == nullptr ? Session::End::kNone : session->end;
}

bool Shard::HaveLivingEnded() const {
  bool is_any = false;
  for (size_t rank = 0; rank < epoch_.workers.size(); ++rank) {
    if (epoch_.IsLast(static_cast<Rank>(rank))) continue;
    if (EndOf(rank) == Session::End::kNone) return false;
    is_any = true;
  }
  return is_any;
}

bool Shard::HaveAllLeft() const {
  for (size_t rank = 0; rank < epoch_.workers.size(); ++rank) {
    const bool has_left = epoch_.workers[rank].state == Epoch::State::kLeft;
    if (!has_left && EndOf(rank) != Session::End::kLeft) return false;
  }
  return true;
}

void Shard::Closed(LinkId link) {
  hellos_.erase(link);
  if (Session* const session = sessions_.Of(link)) UnparkAll(session);
  sessions_.Close(link);
}

// Ends the sessions of incarnations that are over.
void Shard::EndOldSessions(Effects* effects) {
  std::vector<SessionId> over;
  for (const auto& [id, session] : sessions_.all()) {
    if (IsOver(session.role, id)) over.push_back(id);
  }
  for (const SessionId& id : over) {
    Session& session = sessions_.At(id);
    UnparkAll(&session);
    if (session.link != kNoLink) {
      const Epoch::Seat& seat = epoch_.workers[static_cast<size_t>(id.rank)];
      const bool has_left = seat.state == Epoch::State::kLeft && seat.incarnation == id.incarnation;
      if (has_left) {
        effects->Close(session.link, Code::kCancelled, "the worker has left");
      } else {
        effects->Close(
            session.link, Code::kAborted,
            Format("worker {}: this life is over (incarnation {})", id.rank, id.incarnation));
      }
    }
    DropRules(id.rank, id.incarnation, epoch_.CommittedBy(id.rank, id.incarnation));
    cuts_.Drop(id, std::nullopt);
    sessions_.Erase(id);
  }
}

void Shard::On(const Epoch& epoch, Effects* effects) {
  if (epoch.number <= epoch_.number) return;
  for (size_t i = 0; i < std::min(epoch_.workers.size(), epoch.workers.size()); ++i) {
    const uint64_t known = epoch_.workers[i].incarnation;
    const bool is_next_life = known != 0 && epoch.workers[i].incarnation != known;
    if (is_next_life) came_again_.insert(static_cast<Rank>(i));
  }
  epoch_ = epoch;
  member_count_ = gone_count_ = 0;
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    if (!epoch_.IsMember(rank)) continue;
    ++member_count_;
    gone_count_ += static_cast<size_t>(epoch_.IsGone(rank));
  }
  EndOldSessions(effects);
  std::erase_if(grants_,
                [&](const auto& grant) { return IsOver(Role::kWorker, grant.second.maker); });
  for (auto at = hellos_.begin(); at != hellos_.end();) {
    const auto [link, waiting] = *at;
    const SessionId id{waiting.hello.rank, waiting.hello.incarnation};
    if (IsOver(waiting.hello.role, id)) {
      effects->Close(link, Code::kAborted,
                     Format("HELLO: worker {} incarnation {} is over", id.rank, id.incarnation));
    } else if (incarnation_ != 0 && IsListed(waiting.hello)) {
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
    if (chunk.former && IsSettled(*chunk.former->tried)) chunk.former.reset();
    CompleteRounds(id, &key, &chunk, effects);
    AnswerParked(id, &key, &chunk, effects);
  }
  RecheckClosedStores(effects);
}

// ---- judging ------------------------------------------------------------------------------------

void Shard::Header(LinkId link, uint64_t low) {
  if (Session* const session = sessions_.Of(link)) session->Raise(low);
}

bool Shard::Admit(LinkId link, const Message& message) {
  const Session* const session = sessions_.Of(link);
  if (session == nullptr) return false;
  if (message.type == Type::kPull) return AdmitsIds(*session, message);
  if (session->role != Role::kWorker) return false;
  switch (message.type) {
    case Type::kPush: {
      const Chunk* const chunk = FindChunk(message.chunk_id());
      const Key* const key = FindKey(message.key);
      if (chunk == nullptr || key == nullptr ||
          codec::Judge(key->meta, message.chunk, message.encoding, message.param,
                       message.body.size)) {
        return false;
      }
      // The push needs all of this once its frame has arrived, and memory is slow.  Prefetching
      // here loads the chunks of a frame in parallel.
      chunk->value.Prefetch();
      Prefetch(chunk, sizeof *chunk);
      Prefetch(&key->pending, 1);
      return true;
    }
    case Type::kInit:
      return AdmitsInit(*session, message);
    case Type::kControl:
      return message.body.size <= kControlItemsMax * sizeof(ControlRounds::Item);
    case Type::kRestore: {
      const Chunk* const chunk = FindChunk(message.chunk_id());
      if (chunk != nullptr && chunk->value.by_rows()) {
        return IsLowestRank(session->id.rank) && message.body.size <= kPartBytesMax;
      }
      return chunk != nullptr && IsLowestRank(session->id.rank) &&
             message.body.size <= (ChunkState::kStatesMax + 2) * (chunk->elements + 1) * 8;
    }
    default:
      return false;
  }
}

// Returns true if the ids of a PULL deserve memory.
bool Shard::AdmitsIds(const Session& session, const Message& message) const {
  const Key* const key = FindKey(message.key);
  return key != nullptr && key->meta.by_rows() && message.body.size % sizeof(uint64_t) == 0 &&
         message.body.size + session.parked_bytes <= options_.asked_bytes_max;
}

// Returns true if the body of an INIT deserves memory: its head is valid and its size permitted.
bool Shard::AdmitsInit(const Session& session, const Message& message) const {
  if (!MayMake(session.id, message) || message.body.size > options_.chunk_bytes_max) return false;
  try {
    const KeyMeta meta = DecodeKeyMeta(message.extra);
    return IsOfThisServer(meta, message) &&
           !codec::Judge(meta, message.chunk, codec::InitEncoding(meta), 0, message.body.size);
  } catch (const Error&) {
    return false;
  }
}

void Shard::Violation(Session* session, const Message& message, std::string reason,
                      Effects* effects) {
  const std::string who = session->role == Role::kObserver ? std::string("an observer")
                                                           : Format("worker {}", session->id.rank);
  effects->Log(Level::kWarning,
               Format("{}: {}: {}; its session is closed", who, Name(message.type), reason));
  effects->Close(session->link, Code::kInvalidArgument,
                 Format("{}: {}", Name(message.type), reason));
  const LinkId link = session->link;
  Closed(link);
}

std::vector<DiskRange> Shard::RangesOnDisk(LinkId link, const Message& message) const {
  const bool is_pull = message.type == Type::kPull;
  if (options_.disk == nullptr || (!is_pull && message.type != Type::kPush)) return {};
  const Session* const session = sessions_.Of(link);
  if (session == nullptr) return {};
  try {
    if (is_pull && (message.flags & kOfCut) != 0) {
      const ChunkCut* const cut = cuts_.Find(session->id, message.chunk_id());
      if (cut == nullptr || !cut->state.by_rows) return {};
      const RowTable& table = cut->value.rows();
      if (message.extra.empty()) {
        return table.RangesOnDisk(codec::MixesOf(cut->bucket, message.body));
      }
      const RowRange rows = DecodeRowRange(message.extra);
      const uint64_t most = kPartBytesMax / (table.row_bytes() + 1);
      return table.RangesOnDisk(table.MixesFrom(rows.first, std::min<uint64_t>(rows.count, most)));
    }
    const auto found = chunks_.find(message.chunk_id());
    if (found == chunks_.end() || !found->second.value.by_rows() || !message.body) return {};
    if (found->second.value.rows().policy().memory_max == 0) return {};
    const codec::Bucket& bucket = found->second.bucket;
    const size_t count = is_pull ? message.body.size / sizeof(uint64_t)
                                 : bucket.RowsIn(message.body.size, message.param);
    return found->second.value.rows().RangesOnDisk(
        codec::MixesOf(bucket, message.body.data, count));
  } catch (const Error&) {
    return {};  // Received reports the error
  }
}

void Shard::Received(LinkId link, Message&& message, Effects* effects) {
  if (message.type == Type::kHello) {
    Session* const known = sessions_.Of(link);
    if (known == nullptr) return OnHello(link, message, effects);
    return;  // a repetition on a welcomed link
  }
  Session* const session = sessions_.Of(link);
  if (message.type == Type::kError) {  // the client says why it closes the link
    const bool leaves = message.seq == 0 && ErrorOf(message).code() == Code::kAborted;
    if (session != nullptr && leaves) session->end = Session::End::kLeft;
    return;
  }
  if (session == nullptr) {
    if (hellos_.contains(link)) return;  // the client repeats it after WELCOME
    return effects->Close(link, Code::kUnauthenticated,
                          Format("{}: HELLO comes first", Name(message.type)));
  }
  ExecuteOnce(session, message, effects);
  RunWaiting(link, effects);
}

void Shard::ExecuteOnce(Session* session, Message& message, Effects* effects) {
  if (!IsMutating(message.type)) return Execute(session, message, effects);
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
                     Format("operation {} is beyond the window [{}, {})", message.seq, session->low,
                            session->low + Session::kWindow),
                     effects);
  }
  session->Begin(message.seq);
  if (message.type == Type::kPush && message.body.owner != NoMemory()) {
    ++session->pushes;
    session->pushed_bytes += message.body.size;
  }
  Execute(session, message, effects);
}

void Shard::Execute(Session* session, Message& message, Effects* effects) {
  if (message.body.owner == NoMemory()) {
    return AnswerError(
        session, message, Code::kResourceExhausted,
        Format("the server: the system has no {} bytes of memory", message.body.size), effects);
  }
  switch (message.type) {
    case Type::kPush:
      return OnPush(session, message, effects);
    case Type::kPull:
      return OnPull(session, message, effects);
    case Type::kInit:
      return OnInit(session, message, effects);
    case Type::kDescribe:
      return OnDescribe(session, message, effects);
    case Type::kStatus:
      return OnStatus(session, message, effects);
    case Type::kList:
      return OnList(session, message, effects);
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
    case Type::kClose:
      return OnClose(session, message, effects);
    case Type::kRelease:
      return OnRelease(session, message, effects);
    case Type::kRestore:
      return OnRestore(session, message, effects);
    case Type::kPing:
      return effects->Send(session->link, Reply(message, Type::kPong));
    default:
      Violation(session, message, "a server does not take it", effects);
  }
}

void Shard::Answer(Session* session, const Message& request, Message reply, Effects* effects) {
  if (IsMutating(request.type)) session->Finish(request.seq, reply);
  has_begun_ |=
      reply.type == Type::kAccepted && (request.flags & (kBarrierKey | kBegins)) != kBarrierKey;
  if (session->link != kNoLink) effects->Send(session->link, std::move(reply));
}

void Shard::AnswerError(Session* session, const Message& request, Code code, std::string text,
                        Effects* effects) {
  if (code == Code::kResourceExhausted && now_ >= next_refusal_) {
    next_refusal_ = now_ + kRefusalsEvery;
    effects->Log(Level::kWarning,
                 Format("{} of worker {}: {}", Name(request.type), session->id.rank, text));
  }
  Answer(session, request, ErrorReply(request.seq, code, std::move(text)), effects);
}

// Executes the asynchronous pushes whose predecessor is done now.  They do not run inside another
// operation, because it holds references to objects that a push may change.
void Shard::RunWaiting(LinkId link, Effects* effects) {
  for (;;) {
    Session* const session = sessions_.Of(link);  // the previous push may have closed it
    if (session == nullptr) return;
    const auto next =
        std::find_if(session->waiting.begin(), session->waiting.end(),
                     [&](const Message& message) { return session->IsDone(message.need); });
    if (next == session->waiting.end()) return;
    Message message = std::move(*next);
    session->waiting.erase(next);
    Execute(session, message, effects);
  }
}

std::optional<SessionId> Shard::SessionIdOf(LinkId link) const {
  const Session* const session = sessions_.Of(link);
  return session == nullptr ? std::nullopt : std::optional(session->id);
}

// ---- coverage -----------------------------------------------------------------------------------

const char* Shard::StateFor(LinkId link, const Message& message) const {
  const Session* const session = sessions_.Of(link);
  if (session == nullptr) return hellos_.contains(link) ? "unwelcomed" : "stranger";
  if (message.type == Type::kHello || message.type == Type::kPing) return "welcomed";
  if (IsMutating(message.type)) {
    if (message.seq < session->low) return "answered";
    if (const auto* result = const_cast<Session*>(session)->Find(message.seq)) {
      return result->done ? "done" : "waiting";
    }
  }
  const Chunk* const chunk = FindChunk(message.chunk_id());
  if (chunk == nullptr) return "no chunk";
  if (!chunk->rounds.empty()) return "round open";
  return chunk->version == 0 ? "fresh" : "round closed";
}

}  // namespace tkv
