#include "server/pulls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/format.h"
#include "server/asked_ids.h"

namespace tkv {
namespace {

// Returns true if the chunk has the version that a pull asks for, and the operation that the pull
// needs is done.
bool CanAnswer(const Chunk& chunk, const ParkedPull& pull, const Session& session) {
  return chunk.version >= pull.min_version && (pull.need == 0 || session.IsDone(pull.need));
}

// Copies the ids of a message into the pull.  Returns an error if they are wrong.
std::optional<Error> TakeIds(const Message& message, const Chunk& chunk, ParkedPull* pull) {
  const size_t bytes = message.body.size;
  if (!chunk.value.by_rows()) {
    if (bytes == 0) return std::nullopt;
    return Fail(Code::kFailedPrecondition, "{} bytes of ids, and the key is not kept by rows{}",
                bytes, kDeleteRight);
  }
  if (pull->no_body) return std::nullopt;
  try {
    pull->mixes = AskedMixes(message, chunk.bucket, chunk.value.rows().row_bytes());
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace

bool Pulls::Admits(const Session& session, const Message& message) const {
  const StoredKey* const key = core_.FindKey(message.key);
  return key != nullptr && key->meta.by_rows() && message.body.size % sizeof(uint64_t) == 0 &&
         message.body.size + session.parked_bytes <= core_.options.asked_bytes_max;
}

void Pulls::OnPull(Session* session, const Message& message, Effects* effects) {
  const bool cuts = (message.flags & kCut) != 0;
  if (cuts && (session->role != Role::kWorker || (message.flags & kNoBody) == 0)) {
    return replies_.Violation(session, message, "a cut is a worker's, and without a body", effects);
  }
  const auto key = core_.keys.find(message.key);
  const auto found = core_.chunks.find(message.chunk_id());
  if (key == core_.keys.end() || found == core_.chunks.end()) {
    return replies_.AnswerError(session, message, Code::kNotFound, "no such key", effects);
  }
  Chunk& chunk = found->second;
  if (!key->second.IsMeantBy(message)) return replies_.AnswerMadeAnew(session, message, effects);
  const uint64_t need = (message.flags & kOfBirth) != 0 ? 0 : message.need;
  ParkedPull pull{session->id,
                  message.seq,
                  message.number,
                  need,
                  (message.flags & kNoBody) != 0,
                  (message.flags & kAnyway) != 0,
                  cuts};
  if (const auto error = TakeIds(message, chunk, &pull)) {
    return replies_.AnswerError(session, message, error->code(), error->what(), effects);
  }
  if (pull.seq <= session->newest_parked) {
    std::erase_if(chunk.parked, [&](const ParkedPull& old) {  // a repetition
      const bool same = old.session == pull.session && old.seq == pull.seq;
      if (same) session->Unpark(old);
      return same;
    });
  }
  if (CanAnswer(chunk, pull, *session)) {
    // An asynchronous chunk takes a new rule with its next push.  A cut has this rule already.
    if (cuts && key->second.meta.mode == KeyMeta::Mode::kAsync) {
      controls_.Apply(&key->second, &chunk);
    }
    return SendValue(session, message.chunk_id(), key->second, chunk, pull, effects);
  }
  if (const std::string why = WhyNever(key->second, chunk, pull); !why.empty()) {
    return replies_.AnswerError(session, message, Code::kUnavailable, why, effects);
  }
  const size_t bytes = pull.mixes.size() * sizeof(uint64_t);
  if (session->parked >= core_.options.parked_max) {
    return replies_.AnswerTooMany(session, message, effects);
  }
  if (session->parked_bytes + bytes > core_.options.asked_bytes_max) {
    return replies_.AnswerError(
        session, message, Code::kResourceExhausted,
        Format("{} bytes of ids of this worker wait at the server, at most {} may",
               session->parked_bytes, core_.options.asked_bytes_max),
        effects);
  }
  ++session->parked;
  session->parked_bytes += bytes;
  session->newest_parked = std::max(session->newest_parked, pull.seq);
  chunk.parked.push_back(std::move(pull));
}

void Pulls::AnswerParked(const ChunkId& id, const StoredKey& key, Chunk* chunk, Effects* effects) {
  std::erase_if(chunk->parked, [&](const ParkedPull& pull) {
    Session& session = core_.sessions.At(pull.session);
    if (CanAnswer(*chunk, pull, session)) {
      session.Unpark(pull);
      SendValue(&session, id, key, *chunk, pull, effects);
      return true;
    }
    const std::string why = WhyNever(key, *chunk, pull);
    if (why.empty()) return false;
    session.Unpark(pull);
    if (session.link != kNoLink) {
      effects->Send(session.link, ErrorReply(pull.seq, Code::kUnavailable, why));
    }
    return true;
  });
}

void Pulls::SendValue(Session* session, const ChunkId& id, const StoredKey& key, const Chunk& chunk,
                      const ParkedPull& pull, Effects* effects) {
  if (session->link == kNoLink) return;
  if (pull.cuts) {
    if (const std::string why = core_.cuts.WhyNot(session->id); !why.empty()) {
      return effects->Send(session->link, ErrorReply(pull.seq, Code::kFailedPrecondition, why));
    }
  } else if (!pull.anyway) {
    if (const Error* const failure = key.FailureOf(chunk, pull.min_version)) {
      return effects->Send(session->link, ErrorReply(pull.seq, failure->code(), failure->what()));
    }
  }
  Message reply;
  reply.type = Type::kValue;
  reply.dtype = chunk.dtype;
  reply.chunk = id.chunk;
  reply.key = id.key;
  reply.number = chunk.version;
  reply.seq = pull.seq;
  if (pull.cuts) {
    // A repeated PULL replaces no cut, because its sender may be reading it.
    const ChunkCut& cut = core_.cuts.Keep(session->id, id, pull.seq, [&] {
      return ChunkEditor::Cut(controls_.WithDueRule(key, chunk), StoreOf(key.meta.name));
    });
    reply.number = cut.state.version;
    reply.flags = kNoBody;
    reply.extra = Encode(cut.state);
  } else if (pull.no_body) {
    reply.flags = kNoBody;
  } else if (chunk.value.by_rows()) {
    try {
      reply.body = core_.editor.ReadRows(chunk, pull.mixes);
    } catch (const Error& error) {
      return effects->Send(session->link, ErrorReply(pull.seq, error.code(), error.what()));
    }
  } else {
    reply.body = chunk.value.Read();
  }
  effects->Send(session->link, std::move(reply));
}

std::string Pulls::WhyNever(const StoredKey& key, const Chunk& chunk,
                            const ParkedPull& pull) const {
  if (!core_.members.HasGone() && core_.half_closed.empty()) return {};
  if (pull.min_version <= chunk.version || key.meta.mode == KeyMeta::Mode::kAsync) return {};
  for (Rank rank = 0; static_cast<size_t>(rank) < core_.epoch().workers.size(); ++rank) {
    const bool has_closed = core_.HasClosed(rank, key.store);
    if (!core_.IsAwaited(key, rank) ||
        (core_.members.WaitsForLife(pull.session, rank) && !has_closed)) {
      continue;
    }
    uint64_t covered = key.LastCovered(chunk, rank);
    if (covered >= pull.min_version) continue;
    covered += chunk.base;  // as the user counts rounds
    if (core_.epoch().workers[static_cast<size_t>(rank)].state == Epoch::State::kLeft) {
      return Format("worker {} left after round {}; round {} needs it", rank, covered, covered + 1);
    }
    if (has_closed) {
      return Format("worker {} closed store {} after round {}; round {} needs it", rank, key.store,
                    covered, covered + 1);
    }
    return Format("worker {} is dead; round {} needs it", rank, covered + 1);
  }
  return {};
}

void Pulls::OnCancel(Session* session, const Message& message, Effects* effects) {
  Message reply = Reply(message, Type::kOk);
  const auto is_it = [&](const SessionId& owner, uint64_t seq) {
    return owner == session->id && seq == message.number;
  };
  const auto key = core_.keys.find(message.key);
  const auto chunk = core_.chunks.find(message.chunk_id());
  if (key != core_.keys.end() && chunk != core_.chunks.end()) {
    reply.extra = Encode(core_.StatusOf(key->second, chunk->second, session->id.rank));
    std::erase_if(chunk->second.parked, [&](const ParkedPull& pull) {
      const bool same = is_it(pull.session, pull.seq);
      if (same) session->Unpark(pull);
      return same;
    });
  }
  core_.ForgetDescribe(session, message.number);
  effects->Send(session->link, std::move(reply));
}

}  // namespace tkv
