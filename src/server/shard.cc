#include "server/shard.h"

#include <algorithm>

#include "base/format.h"

namespace tkv {

const std::shared_ptr<void>& NoMemory() {
  static const auto* const mark = new std::shared_ptr<void>(std::make_shared<char>());
  return *mark;
}

std::vector<SessionId> Shard::Miscounted() const {
  std::map<SessionId, size_t> waiting;
  for (const auto& [id, chunk] : core_.chunks) {
    for (const ParkedPull& pull : chunk.parked) ++waiting[pull.session];
  }
  for (const auto& [session, seq] : core_.describes.All()) ++waiting[session];
  std::vector<SessionId> wrong;
  for (const auto& [id, session] : core_.sessions.all()) {
    if (session.parked != waiting[id]) wrong.push_back(id);
  }
  return wrong;
}

void Shard::On(const Epoch& epoch, Effects* effects) {
  if (!core_.members.Adopt(epoch)) return;
  sessions_.EndOld(effects);
  describes_.DropGrants();
  sessions_.RecheckHellos(effects);
  describes_.Recheck(effects);
  for (auto& [id, chunk] : core_.chunks) {
    StoredKey& key = core_.keys.at(id.key);
    if (chunk.former && controls_.IsSettled(*chunk.former->tried)) chunk.former.reset();
    rounds_.Complete(id, &key, &chunk, effects);
    pulls_.AnswerParked(id, key, &chunk, effects);
  }
  removal_.Recheck(effects);
}

void Shard::Header(LinkId link, uint64_t low) {
  if (Session* const session = core_.sessions.Of(link)) session->Raise(low);
}

bool Shard::Admit(LinkId link, const Message& message) {
  const Session* const session = core_.sessions.Of(link);
  if (session == nullptr) return false;
  if (message.type == Type::kPull) return pulls_.Admits(*session, message);
  if (session->role != Role::kWorker) return false;
  switch (message.type) {
    case Type::kPush:
      return rounds_.Admits(message);
    case Type::kInit:
      return catalog_.Admits(*session, message);
    case Type::kControl:
      return Controls::Admits(message);
    case Type::kRestore:
      return snapshots_.Admits(*session, message);
    default:
      return false;
  }
}

std::vector<DiskRange> Shard::RangesOnDisk(LinkId link, const Message& message) const {
  const bool is_pull = message.type == Type::kPull;
  if (core_.options.disk == nullptr || (!is_pull && message.type != Type::kPush)) return {};
  const Session* const session = core_.sessions.Of(link);
  if (session == nullptr) return {};
  try {
    if (is_pull && (message.flags & kOfCut) != 0) {
      const ChunkCut* const cut = core_.cuts.Find(session->id, message.chunk_id());
      if (cut == nullptr || !cut->state.by_rows) return {};
      const RowTable& table = cut->value.rows();
      if (message.extra.empty()) {
        return table.RangesOnDisk(codec::MixesOf(cut->bucket, message.body));
      }
      const RowRange rows = DecodeRowRange(message.extra);
      const uint64_t most = kPartBytesMax / (table.row_bytes() + 1);
      return table.RangesOnDisk(table.MixesFrom(rows.first, std::min<uint64_t>(rows.count, most)));
    }
    const auto found = core_.chunks.find(message.chunk_id());
    if (found == core_.chunks.end() || !found->second.value.by_rows() || !message.body) return {};
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
    Session* const known = core_.sessions.Of(link);
    if (known == nullptr) return sessions_.OnHello(link, message, effects);
    return;  // a repetition on a welcomed link
  }
  Session* const session = core_.sessions.Of(link);
  if (message.type == Type::kError) {  // the client says why it closes the link
    return Sessions::OnError(session, message);
  }
  if (session == nullptr) {
    if (core_.hellos.contains(link)) return;  // the client repeats it after WELCOME
    return effects->Close(link, Code::kUnauthenticated,
                          Format("{}: HELLO comes first", Name(message.type)));
  }
  ExecuteOnce(session, message, effects);
  RunWaiting(link, effects);
}

void Shard::ExecuteOnce(Session* session, Message& message, Effects* effects) {
  if (!IsMutating(message.type)) return Execute(session, message, effects);
  if (session->role != Role::kWorker) {
    return replies_.Violation(session, message, "an observer only reads", effects);
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
    return replies_.Violation(session, message,
                              Format("operation {} is beyond the window [{}, {})", message.seq,
                                     session->low, session->low + Session::kWindow),
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
    return replies_.AnswerError(
        session, message, Code::kResourceExhausted,
        Format("the server: the system has no {} bytes of memory", message.body.size), effects);
  }
  switch (message.type) {
    case Type::kPush:
      return rounds_.OnPush(session, message, effects);
    case Type::kPull:
      if ((message.flags & kOfCut) != 0) return snapshots_.OnRead(session, message, effects);
      return pulls_.OnPull(session, message, effects);
    case Type::kInit:
      return catalog_.OnInit(session, message, effects);
    case Type::kDescribe:
      return describes_.OnDescribe(session, message, effects);
    case Type::kStatus:
      return listings_.OnStatus(session, message, effects);
    case Type::kList:
      return listings_.OnList(session, message, effects);
    case Type::kCancel:
      return pulls_.OnCancel(session, message, effects);
    case Type::kControl:
      return controls_.OnControl(session, message, effects);
    case Type::kWithdraw:
      return controls_.OnWithdraw(session, message, effects);
    case Type::kAbstain:
      return rounds_.OnAbstain(session, message, effects);
    case Type::kDelete:
      return catalog_.OnDelete(session, message, effects);
    case Type::kClose:
      return removal_.OnClose(session, message, effects);
    case Type::kRelease:
      return snapshots_.OnRelease(session, message, effects);
    case Type::kRestore:
      return snapshots_.OnRestore(session, message, effects);
    case Type::kPing:
      return effects->Send(session->link, Reply(message, Type::kPong));
    default:
      replies_.Violation(session, message, "a server does not take it", effects);
  }
}

void Shard::RunWaiting(LinkId link, Effects* effects) {
  for (;;) {
    Session* const session = core_.sessions.Of(link);  // the previous push may have closed it
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
  const Session* const session = core_.sessions.Of(link);
  return session == nullptr ? std::nullopt : std::optional(session->id);
}

// ---- coverage -----------------------------------------------------------------------------------

const char* Shard::StateFor(LinkId link, const Message& message) const {
  const Session* const session = core_.sessions.Of(link);
  if (session == nullptr) return core_.hellos.contains(link) ? "unwelcomed" : "stranger";
  if (message.type == Type::kHello || message.type == Type::kPing) return "welcomed";
  if (IsMutating(message.type)) {
    if (message.seq < session->low) return "answered";
    if (const auto* result = const_cast<Session*>(session)->Find(message.seq)) {
      return result->done ? "done" : "waiting";
    }
  }
  const Chunk* const chunk = core_.FindChunk(message.chunk_id());
  if (chunk == nullptr) return "no chunk";
  if (!chunk->rounds.empty()) return "round open";
  return chunk->version == 0 ? "fresh" : "round closed";
}

}  // namespace tkv
