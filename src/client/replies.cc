// What answers mean.

#include <algorithm>

#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

using Kind = Operation::Kind;

std::string ModeText(const KeyMeta& meta) {
  std::string text = meta.mode == KeyMeta::Mode::kSync ? "sync" : "async";
  if (meta.staleness > 0) text += Format(", staleness {}", meta.staleness);
  if (meta.deterministic) text += ", deterministic";
  return text;
}

}  // namespace

void Client::Received(LinkId link, const Message& message, Time now, Effects* effects) {
  ServerSession* const session = SessionOfLink(link);
  if (session == nullptr || closed_) return;
  session->last_heard = now;
  session->counts.was_heard = true;
  const uint32_t server = session->server;
  if (message.type == Type::kError && message.seq == 0) {  // the server closes the session
    const Error error = ErrorOf(message);
    effects->Close(link, Code::kCancelled, "");
    if (error.code() == Code::kCancelled) return Closed(link, now);  // it was expected
    if (error.code() == Code::kAborted) return Refused(error, effects);
    return Kill(session, Error(error.code(), Format("server {}: {}", server, error.what())),
                effects);
  }
  if (message.type == Type::kWelcome) {
    if (session->state != ServerSession::State::kHello) return;
    const Welcome welcome = DecodeWelcome(message.extra);
    const std::string who = Format("server {}", server);
    if (const auto error =
            WhyNotTogether(who, welcome.protocol, "this process", options_.protocol)) {
      effects->Close(link, error->code(), error->what());
      return Kill(session, *error, effects);
    }
    const bool changed =
        session->incarnation != 0 && welcome.server_incarnation != session->incarnation;
    // A server keeps nothing of an observer whose link is lost: what it has asked is asked again.
    const bool forgotten = role_ == Role::kWorker && session->incarnation != 0 &&
                           !welcome.resumed && !session->sent.empty();
    if (changed || forgotten) {
      effects->Close(link, Code::kCancelled, "this server is not the one that the client knew");
      Kill(session,
           Error(Code::kUnavailable, Format("server {} has started again and has lost its values{}",
                                            server, kStartAgain)),
           effects);
      return;
    }
    session->incarnation = welcome.server_incarnation;
    session->credit_bytes = welcome.credit_bytes;
    session->state = ServerSession::State::kOpen;
    session->down_since = kNever;
    ++session->counts.welcomes;
    session->redial_after = 0;
    session->next_ping = now + options_.ping_after;
    Rearm(session->next_ping);
    std::vector<uint64_t> seqs;
    seqs.reserve(session->sent.size());
    for (const auto& [seq, sent] : session->sent) seqs.push_back(seq);
    std::sort(seqs.begin(), seqs.end());
    if (!seqs.empty()) {
      effects->Log(Level::kWarning, Format("resumed the session with server {}; unanswered "
                                           "operations sent again: {}",
                                           server, seqs.size()));
    }
    for (const uint64_t seq : seqs) effects->Send(link, session->sent.at(seq).message);
    session->counts.resends += seqs.size();
    return Pump(session);
  }
  const auto found = session->sent.find(message.seq);
  if (found == session->sent.end()) return;  // a repeated answer, or a PONG
  const Outgoing sent = std::move(found->second);
  session->sent.erase(found);
  Uncount(session, sent);
  Pump(session);
  now_ = now;
  OnAnswer(sent, server, message, effects);
}

// An answer, or an ERROR that stands for one that will not come.
void Client::OnAnswer(const Outgoing& sent, uint32_t server, const Message& reply,
                      Effects* effects) {
  switch (sent.purpose) {
    case Purpose::kReady:
      return OnReadyAnswer(sent, reply);
    case Purpose::kJoin:
      return OnJoinAnswer(sent, reply);
    case Purpose::kNotice:
      return OnWhoAnswer(sent, reply, effects);
    case Purpose::kCancel:
      return OnCancelAnswer(sent, server, reply);
    case Purpose::kOp:
      break;
  }
  switch (sent.message.type) {
    case Type::kPush:
      return OnPushAnswer(sent, reply);
    case Type::kPull:
      return OnPullAnswer(sent, reply);
    case Type::kInit:
    case Type::kDescribe:
      return OnInitAnswer(sent, reply);
    default:
      return OnOtherAnswer(sent, reply);
  }
}

// A server says that the key is not the one any more that this client has found: it has to be found
// again.
void Client::NoteGone(KeyState* key, const Error& error) {
  const bool is_gone = error.code() == Code::kNotFound || error.code() == Code::kFailedPrecondition;
  if (is_gone && !key->is_barrier) key->is_stale = true;
}

void Client::OnPushAnswer(const Outgoing& sent, const Message& reply) {
  const auto found = keys_.find(sent.message.key);
  const bool failed = reply.type == Type::kError;
  if (found != keys_.end()) {
    KeyState& key = found->second;
    --key.pushes;
    Wake(found->first);
    if (failed) {
      // Other chunks may have the round, so the key's place in the rounds has to be found again.
      key.must_join = key.meta.mode == KeyMeta::Mode::kSync;
      NoteGone(&key, ErrorOf(reply));
    } else {
      ChunkPlace& place = key.chunks[sent.message.chunk];
      place.version = std::max(place.version, reply.number);
    }
  }
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  --op->unaccepted;
  if (failed) return Fail(op, ErrorOf(reply));
  FinishIfDone(op);
}

void Client::OnPullAnswer(const Outgoing& sent, const Message& reply) {
  const auto found = keys_.find(sent.message.key);
  if (found == keys_.end()) return;
  KeyState& key = found->second;
  --key.pulls;
  Wake(found->first);
  const uint32_t chunk = sent.message.chunk;
  const bool failed = reply.type != Type::kValue;
  if (!failed) {
    key.chunks[chunk].version = std::max(key.chunks[chunk].version, reply.number);
    key.chunks[chunk].unbounded = false;
  }
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  --op->unpulled;
  if (failed) {
    const Error error = ErrorOf(reply);
    Fail(op, error);
    return NoteGone(&key, error);
  }
  op->versions[chunk] = reply.number;
  if (op->unpulled == 0 && PullAgain(found->first, &key, op)) return;
  FinishIfDone(op);
}

// C7: an observer that got unequal versions asks the chunks that are behind again.
bool Client::PullAgain(const KeyId& id, KeyState* key, Op* op) {
  if (role_ != Role::kObserver || op->expired) return false;
  const uint64_t newest = *std::max_element(op->versions.begin(), op->versions.end());
  bool again = false;
  for (uint32_t c = 0; c < op->versions.size(); ++c) {
    if (op->versions[c] == newest) continue;
    if (!again && ++op->tries > options_.observer_tries) {
      Fail(op, Error(Code::kUnavailable,
                     Format("the chunks have had unequal versions {} times", op->tries)));
      return true;
    }
    again = true;
    QueuePull(id, key, op, c, newest, false);
  }
  return again;
}

void Client::OnInitAnswer(const Outgoing& sent, const Message& reply) {
  const auto found = keys_.find(sent.message.key);
  Op* const op = Find(sent.op);
  if (op == nullptr || found == keys_.end()) return;
  KeyState& key = found->second;
  const bool is_describe = sent.message.type == Type::kDescribe;
  --(is_describe ? op->unpulled : op->unaccepted);
  if (reply.type == Type::kError && is_describe && (sent.message.flags & kNoWait) != 0 &&
      ErrorOf(reply).code() == Code::kNotFound) {
    op->phase = 1;  // an earlier life has not finished the key: create it again
    MakePlaces(found->first, &key);
    return QueueInits(found->first, &key, op);
  }
  if (reply.type == Type::kError) return Fail(op, ErrorOf(reply));
  if (reply.type == Type::kExists) {
    return Fail(op, Error(Code::kAlreadyExists, "the key is there already"));
  }
  if (is_describe) {
    const KeyMeta meta = DecodeKeyMeta(reply.extra);
    const KeyMeta* const mine = op->what.meta.get();  // of an init
    if (meta.layout != Layout::kDense) {
      return Fail(op, Error(Code::kUnimplemented,
                            Format("layout {} is not in protocol {} of {}", Name(meta.layout),
                                   kProtocolVersion, PackageName())));
    }
    if (meta.name != op->what.key) {
      return Fail(
          op, Error(Code::kAlreadyExists, Format("the id is taken by {}", ShownKey(meta.name))));
    }
    if (op->what.kind == Kind::kInit && (meta.shape != mine->shape || meta.dtype != mine->dtype)) {
      return Fail(op, Error(Code::kInvalidArgument,
                            Format("shape {} {} here, {} {} in the store", mine->shape.ToString(),
                                   Name(mine->dtype), meta.shape.ToString(), Name(meta.dtype))));
    }
    if (op->what.kind == Kind::kInit &&
        (meta.mode != mine->mode || meta.staleness != mine->staleness ||
         meta.deterministic != mine->deterministic)) {
      return Fail(op, Error(Code::kInvalidArgument,
                            Format("{} here, {} in the store; every worker has to make the same "
                                   "stores in the same order",
                                   ModeText(*mine), ModeText(meta))));
    }
    key.meta = meta;
    key.is_ready = true;
    MakePlaces(found->first, &key);
    if (role_ == Role::kWorker && welcome_.rejoined && meta.mode == KeyMeta::Mode::kSync) {
      key.must_join = true;
      return StartJoin(found->first, &key);  // the operation ends when the round is known
    }
    return Finish(op);
  }
  if (op->unaccepted > 0) return;
  if (op->phase == 1) {
    op->phase = 2;
    return QueueInits(found->first, &key, op);
  }
  key.is_ready = true;
  Finish(op);
}

void Client::OnOtherAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  --op->unaccepted;
  if (op->what.kind == Kind::kControl) {
    if (reply.type == Type::kError && !op->error) op->error = ErrorOf(reply);
    return;  // AdvanceControl goes on
  }
  if (op->what.kind == Kind::kClose) {  // a server that is out of reach hears of it later
    if (op->unaccepted > 0) return;
    ForgetStore(op->what.store);
    return Finish(op);
  }
  if (reply.type == Type::kError) return Fail(op, ErrorOf(reply));
  if (op->unaccepted > 0) return;
  if (op->what.kind == Kind::kDelete) Forget(&keys_.at(op->key));
  Finish(op);
}

void Client::OnReadyAnswer(const Outgoing& sent, const Message& reply) {
  const auto found = keys_.find(sent.message.key);
  if (found == keys_.end()) return;
  KeyState& key = found->second;
  ChunkPlace& place = key.chunks[sent.message.chunk];
  place.asked = false;
  --key.pulls;
  Wake(found->first);
  if (reply.type == Type::kValue) {
    place.version = std::max(place.version, reply.number);
    return;
  }
  place.unbounded = true;
  NoteGone(&key, ErrorOf(reply));
  FailFront(&key, ErrorOf(reply));
}

void Client::OnJoinAnswer(const Outgoing& sent, const Message& reply) {
  const auto found = keys_.find(sent.message.key);
  if (found == keys_.end()) return;
  KeyState& key = found->second;
  --key.join_left;
  Wake(found->first);
  const bool unknown_barrier =
      key.is_barrier && reply.type == Type::kError && ErrorOf(reply).code() == Code::kNotFound;
  if (reply.type == Type::kError && !unknown_barrier) {
    NoteGone(&key, ErrorOf(reply));
    if (key.join_phase != 0) FailJoin(&key, ErrorOf(reply));
    return;
  }
  if (key.join_phase == 0) return;  // it has failed already
  ChunkPlace& place = key.chunks[sent.message.chunk];
  if (key.join_phase == 1 && !unknown_barrier) {
    const ChunkStatus status = DecodeChunkStatus(reply.extra);
    place.version = std::max(place.version, status.version);
    key.join_round = std::max(key.join_round, status.last_arrived);
  } else if (key.join_phase == 3 && !unknown_barrier) {
    place.version = std::max(place.version, reply.number);
  }
  if (key.join_left > 0) return;
  if (key.join_phase == 1) {
    key.round = key.join_round;
  }
  if (key.join_phase < 3) {
    ++key.join_phase;
    return NextJoinPhase(found->first, &key);
  }
  key.join_phase = 0;
  key.must_join = false;
  if (Op* const op = Find(key.opening)) {
    key.opening = kNoOp;
    Finish(op);
  }
}

// Who is missing, for a notice or for the error of a deadline.
void Client::OnWhoAnswer(const Outgoing& sent, const Message& reply, Effects* effects) {
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  if (reply.type == Type::kStatusReply) op->missing = DecodeChunkStatus(reply.extra).missing;
  if (op->expired) return Fail(op, TimeoutOf(*op));
  TellStand(*op, reply.number + 1, effects);
}

void Client::OnCancelAnswer(const Outgoing& sent, uint32_t server, const Message& reply) {
  ServerSession& session = sessions_[server];
  Op* const op = Find(sent.op);
  if (op != nullptr && reply.type == Type::kOk && !reply.extra.empty()) {
    const ChunkStatus status = DecodeChunkStatus(reply.extra);
    if (op->missing.empty()) op->missing = status.missing;
  }
  const auto found = session.sent.find(sent.message.number);
  if (found == session.sent.end()) return;
  const Outgoing pull = std::move(found->second);
  session.sent.erase(found);
  Uncount(&session, pull);
  if (pull.message.type == Type::kPull) {
    if (const auto key = keys_.find(pull.message.key); key != keys_.end()) {
      --key->second.pulls;
      Wake(key->first);
    }
  }
  if (op == nullptr) return;
  --op->unpulled;
  op->cancelled = true;
  if (op->unpulled == 0) Fail(op, TimeoutOf(*op));
}

}  // namespace tkv
