// Pushes, pulls, and the versions that both wait for.

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

// Adds to a barrier whether its task is done, and the error that every worker gets if it is not.  A
// server without that feature completes the barrier without an error.
void AddTask(const Operation::Barrier& operation, const ServerLink& link, Message* barrier) {
  using Task = Operation::Barrier::Task;
  const uint64_t feature = operation.task == Task::kNone     ? kFailsFeature
                           : operation.task == Task::kBegins ? kBegunFeature
                                                             : kDoneFeature;
  if (link.incarnation() != 0 && (link.features() & feature) == 0) return;
  if (operation.task == Task::kDone) barrier->flags |= kDone;
  if (operation.task == Task::kBegins) barrier->flags |= kBegins;
  if (!operation.failure) return;
  barrier->flags |= kFails;
  if (operation.task == Task::kOfAnother) barrier->flags |= kUnlessDone;
  barrier->extra = EncodeFailure(*operation.failure);
}

// Adds to a PUSH its training step, its scalars, and its chunk's part of the value.
void AddPush(const Operation::Push& push, bool takes_steps, bool takes_rules, Message* message) {
  if (push.step.number != 0 && takes_steps) {
    message->flags |= kInStep;
    message->extra = Encode(push.step);
  }
  if (push.scalars) {
    message->flags |= kHasScalars;
    message->extra += EncodeScalars(*push.scalars);
    if (push.rule != 0 && takes_rules) {
      message->flags |= kOfRule;
      message->extra += EncodeRuleDigest(push.rule);
    }
  }
  message->encoding = push.value.encoding;
  message->param = push.value.param;
  message->body = push.value.PartOf(message->chunk);
}

}  // namespace

bool Client::TryPush(const KeyId& id, KeyState* key, Op* op) {
  const bool is_barrier = key->is_barrier;
  if (!is_barrier && announcements_.Holds(op->id)) return false;
  if (is_barrier && !pushes_.empty() && pushes_.front() < op->id) return false;
  if (key->pulls > 0) return false;  // no push overtakes a pull of its key
  if (LacksRule(*key) && RepeatControl(id, *key, op->operation.patience)) return false;
  const uint64_t round = key->round + 1;
  const bool is_sync = key->meta.mode == KeyMeta::Mode::kSync;
  if (is_sync && round > key->meta.staleness + 1) {  // it follows a version to be known
    const uint64_t follows = round - 1 - key->meta.staleness;
    bool known = true;
    for (uint32_t c = 0; c < key->chunks.size(); ++c) {
      if (key->chunks[c].version >= follows) continue;
      known = false;
      Ask(id, key, c, follows);
    }
    if (!known) return false;
  }
  for (const KnownChunk& known : key->chunks) {
    if (const auto& dead = links_[known.server].dead()) {
      Fail(op, *dead);
      return true;
    }
  }
  std::optional<Error> error;
  if (!is_barrier) error = codec::Cut(key->meta, op->operation.value());
  const Operation::Push* const operation = op->operation.push();  // null: a barrier
  const Operation::Pull* const pull = op->operation.pull();       // null: a push alone
  if (!error && pull != nullptr) error = CheckIds(*key, *pull);
  if (error) {
    Fail(op, *error);
    return true;
  }
  key->round = round;  // from here on the push has a round
  key->has_pushed = true;
  op->round = round;
  op->has_started = true;
  const bool exact = key->meta.exact_reads();
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    Outgoing push;
    push.op = op->id;
    push.priority = op->operation.priority;
    Message& message = push.message;
    message.type = Type::kPush;
    message.key = id;
    message.chunk = c;
    message.dtype = key->meta.dtype;
    message.number = round;
    if (is_barrier) {
      message.flags |= kBarrierKey;
      message.need = op->operation.store;
      AddTask(*op->operation.As<Operation::Barrier>(), links_[key->chunks[c].server], &message);
    }
    const ServerLink& link = links_[key->chunks[c].server];
    const bool takes_steps = is_sync && link.TakesSteps();
    if (operation != nullptr) AddPush(*operation, takes_steps, link.TakesRules(), &message);
    ++key->pushes;
    ++key->chunks[c].queued_pushes;
    ++op->unaccepted;
    Queue(key->chunks[c].server, std::move(push));
    if ((pull != nullptr || is_barrier) && IsAsked(key->meta, pull, c)) {
      QueuePull(id, key, op, c, exact || is_barrier ? round : 0, is_barrier);
    }
  }
  return true;
}

void Client::Ask(const KeyId& id, KeyState* key, uint32_t chunk, uint64_t version) {
  KnownChunk& known = key->chunks[chunk];
  if (known.asked) return;
  known.asked = true;
  ++key->pulls;
  Outgoing ask;
  ask.purpose = Purpose::kReady;
  ask.message.type = Type::kPull;
  ask.message.flags = kNoBody | kAnyway;
  ask.message.key = id;
  ask.message.chunk = chunk;
  ask.message.number = version;
  Queue(known.server, std::move(ask));
}

void Client::StartPulls(const KeyId& id, KeyState* key, Op* op) {
  const Operation::Pull* const pull = op->operation.pull();
  if (pull != nullptr) {
    if (const auto error = CheckIds(*key, *pull)) return Fail(op, *error);
  }
  for (const KnownChunk& known : key->chunks) {
    if (const auto& dead = links_[known.server].dead()) return Fail(op, *dead);
  }
  if (op->operation.Is<Operation::Cut>() && key->is_uneven()) {
    return Fail(op, Uneven(key->base + key->round));
  }
  op->has_started = true;
  op->versions.assign(key->chunks.size(), 0);
  const bool no_body = pull == nullptr;
  if (op->operation.Is<Operation::Cut>()) op->states.resize(key->chunks.size());
  const bool waits_for_round =
      key->meta.mode == KeyMeta::Mode::kSync && (key->meta.exact_reads() || no_body);
  const uint64_t min_version = role_ == Role::kWorker && waits_for_round ? key->round : 0;
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    if (!no_body && !IsAsked(key->meta, pull, c)) continue;
    QueuePull(id, key, op, c, min_version, no_body);
  }
  FinishIfDone(op);  // a pull of no rows sends no message
}

// Returns an error if the ids of a pull or the size of its `out` are wrong.
std::optional<Error> Client::CheckIds(const KeyState& key, const Operation::Pull& pull) const {
  const codec::Contribution& ids = pull.ids;
  if (!key.meta.by_rows()) {
    if (ids.ends.empty()) return std::nullopt;
    return tkv::Fail(Code::kInvalidArgument, "rows of a key whose layout is {}",
                     Name(key.meta.layout));
  }
  size_t begin = 0;
  bool is_right = ids.ends.size() == key.meta.chunk_count() && ids.ends.back() == ids.bytes.size &&
                  pull.out.size == ids.bytes.size / sizeof(uint64_t) * key.meta.row_bytes();
  for (const size_t end : ids.ends) {
    is_right = is_right && end >= begin && end % sizeof(uint64_t) == 0;
    begin = end;
  }
  if (is_right) return std::nullopt;
  return tkv::Fail(Code::kInvalidArgument, "{} bytes of ids in {} parts for {} bytes of rows",
                   ids.bytes.size, ids.ends.size(), pull.out.size);
}

// Returns true if a pull needs this chunk.  By rows, a chunk without wanted rows is not needed.
bool Client::IsAsked(const KeyMeta& meta, const Operation::Pull* pull, uint32_t chunk) {
  return !meta.by_rows() || RangeOf(meta, *pull, chunk).size > 0;
}

// Returns the range of the pull's `out` that receives a chunk's answer.
codec::Range Client::RangeOf(const KeyMeta& meta, const Operation::Pull& pull, uint32_t chunk) {
  if (!meta.by_rows()) return codec::DenseRange(meta, chunk);
  const size_t begin = chunk == 0 ? 0 : pull.ids.ends[chunk - 1];
  const size_t size = pull.ids.ends[chunk] - begin;
  return {begin / sizeof(uint64_t) * meta.row_bytes(), size / sizeof(uint64_t) * meta.row_bytes()};
}

void Client::QueuePull(const KeyId& id, KeyState* key, Op* op, uint32_t chunk, uint64_t min_version,
                       bool no_body) {
  if (op->versions.empty()) op->versions.assign(key->chunks.size(), 0);
  Outgoing pull;
  pull.op = op->id;
  pull.priority = op->operation.priority;
  if (!no_body) {
    const Operation::Pull& operation = *op->operation.pull();
    pull.pull_bytes = RangeOf(key->meta, operation, chunk).size;
    if (key->meta.by_rows()) pull.message.body = operation.ids.PartOf(chunk);
    pull.pull_bytes += pull.message.body.size;
  }
  pull.message.type = Type::kPull;
  if (no_body) pull.message.flags = kNoBody;
  if (op->operation.Is<Operation::Cut>()) pull.message.flags |= kCut;
  pull.message.key = id;
  pull.message.chunk = chunk;
  pull.message.dtype = key->meta.dtype;
  pull.message.number = min_version;
  ++key->pulls;
  ++op->unpulled;
  Queue(key->chunks[chunk].server, std::move(pull));
}

// Marks the key as stale if the error says that the key was deleted, or is not the one that this
// client has found.
void Client::MarkStaleIfGone(KeyState* key, const Error& error) {
  const bool is_gone = error.code() == Code::kNotFound || error.code() == Code::kFailedPrecondition;
  if (is_gone && !key->is_barrier) key->is_stale = true;
}

void Client::OnPushAnswer(const Outgoing& sent, const Message& reply) {
  const auto found = keys_.find(sent.message.key);
  const bool failed = reply.type == Type::kError;
  if (found != keys_.end()) {
    KeyState& key = found->second;
    Drop(&key.pushes);
    Wake(found->first);
    if (failed) {
      MarkStaleIfGone(&key, ErrorOf(reply));
      if (key.meta.mode == KeyMeta::Mode::kSync) {
        LosePush(found->first, &key, sent.message.number, ErrorOf(reply));
      }
    } else {
      KnownChunk& known = key.chunks[sent.message.chunk];
      known.version = std::max(known.version, reply.number);
    }
  }
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unaccepted);
  if (failed) return Fail(op, ErrorOf(reply));
  FinishIfDone(op);
}

// Takes back the round of a push that has failed.  Some chunks may have got the push, so the key's
// current round has to be found again.
void Client::LosePush(const KeyId& id, KeyState* key, uint64_t round, const Error& error) {
  key->must_join = true;
  if (key->lost_from == 0 || round < key->lost_from) key->lost_from = round;
  if (key->round >= round) {
    key->repeats_to = std::max(key->repeats_to, key->round);
    key->round = round - 1;
  }
  if (key->is_stale || key->pulls == 0) return;
  const auto [lost, is_first] = lost_pushes_.try_emplace(id, LostPush{round, error});
  if (!is_first && round < lost->second.round) lost->second = {round, error};
}

// Fails the operations that wait for rounds that lack a push of this worker.  These rounds cannot
// complete before the user pushes again.
void Client::FailLostRounds() {
  if (lost_pushes_.empty()) return;
  const auto lost_pushes = std::exchange(lost_pushes_, {});
  std::set<OpId> waiting;
  CancelWhere(
      [&](const Outgoing& pull) {
        const bool may_wait = pull.purpose == Purpose::kReady || pull.purpose == Purpose::kOp;
        if (!may_wait || !BlocksNextPush(pull.message)) return false;
        const auto lost = lost_pushes.find(pull.message.key);
        if (lost == lost_pushes.end() || pull.message.number < lost->second.round) return false;
        if (pull.purpose == Purpose::kReady) return true;
        const Op* const op = Find(pull.op);
        if (op == nullptr || op->unpulled == 0) return false;  // it is cancelled already
        waiting.insert(pull.op);
        return true;
      },
      false);
  for (const OpId id : waiting) {
    Op* const op = Find(id);
    if (op == nullptr) continue;
    op->unpulled = 0;
    const auto& [round, error] = lost_pushes.at(op->key);
    Fail(op, Error(error.code(), Format("round {} lacks this worker's push, which has failed: {}",
                                        BaseOf(op->operation.key) + round, error.what())));
  }
}

void Client::OnPullAnswer(const Outgoing& sent, const Message& reply) {
  const auto found = keys_.find(sent.message.key);
  if (found == keys_.end()) return;
  KeyState& key = found->second;
  Drop(&key.pulls);
  Wake(found->first);
  const uint32_t chunk = sent.message.chunk;
  const bool failed = reply.type != Type::kValue;
  if (!failed) {
    key.chunks[chunk].version = std::max(key.chunks[chunk].version, reply.number);
    key.chunks[chunk].unbounded = false;
  }
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unpulled);
  if (failed) {
    const Error error = ErrorOf(reply);
    // A cut is refused with this code while another worker saves; the key still exists.
    const bool was_refused =
        op->operation.Is<Operation::Cut>() && error.code() == Code::kFailedPrecondition;
    Fail(op, error);
    if (!was_refused) MarkStaleIfGone(&key, error);
    return;
  }
  op->versions[chunk] = reply.number;
  if (op->operation.Is<Operation::Cut>()) {
    op->states[chunk] = DecodeChunkState(reply.extra);
    if (op->states[chunk].by_rows != key.meta.by_rows()) {
      return Fail(op, CannotSaveRows(key.chunks[chunk].server));
    }
  }
  if (op->unpulled == 0 && PullAgain(found->first, &key, op)) return;
  FinishIfDone(op);
}

// An observer that got unequal versions pulls the chunks with older versions again.
bool Client::PullAgain(const KeyId& id, KeyState* key, Op* op) {
  if (role_ != Role::kObserver || op->expired) return false;
  const uint64_t newest = *std::max_element(op->versions.begin(), op->versions.end());
  bool again = false;
  for (uint32_t c = 0; c < op->versions.size(); ++c) {
    if (op->versions[c] == newest) continue;
    if (!IsAsked(key->meta, op->operation.pull(), c)) continue;
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

// Notes that this client's request for a version of a chunk is over.
void Client::EndAsk(const Message& ask, uint32_t server) {
  links_[server].ReleasePulls(ask.key, ask.chunk);
  if (KnownChunk* const known = ChunkOf(ask.key, ask.chunk).chunk) known->asked = false;
}

void Client::OnReadyAnswer(const Outgoing& sent, uint32_t server, const Message& reply) {
  EndAsk(sent.message, server);
  const auto found = keys_.find(sent.message.key);
  if (found == keys_.end()) return;
  KeyState& key = found->second;
  KnownChunk& known = key.chunks[sent.message.chunk];
  Drop(&key.pulls);
  Wake(found->first);
  if (reply.type == Type::kValue) {
    known.version = std::max(known.version, reply.number);
    return;
  }
  known.unbounded = true;
  MarkStaleIfGone(&key, ErrorOf(reply));
  FailFirstQueued(&key, ErrorOf(reply));
}

Block Client::Landing(LinkId link, const Message& message) {
  const ServerLink* const from = LinkOf(link);
  if (from == nullptr || message.type != Type::kValue) return {};
  const Outgoing* const sent = from->FindSent(message.seq);
  if (sent == nullptr || sent->message.type != Type::kPull) return {};
  const Op* const op = Find(sent->op);
  const auto key = keys_.find(sent->message.key);
  const bool is_read = (sent->message.flags & kOfCut) != 0;
  if (op == nullptr || (key == keys_.end() && !is_read)) return {};
  const uint32_t chunk = sent->message.chunk;
  const Operation::Pull* const pull = op->operation.pull();
  if (pull == nullptr) return {};
  const codec::Range range = is_read ? PartRange(*op->operation.As<Operation::Read>(), chunk)
                                     : RangeOf(key->second.meta, *pull, chunk);
  if (message.body.size != range.size || range.begin + range.size > pull->out.size) return {};
  return {pull->out.data + range.begin, range.size, pull->out.owner};
}

KnownChunks::Found Client::ChunkOf(const KeyId& id, uint32_t chunk) {
  const auto found = keys_.find(id);
  if (found == keys_.end() || chunk >= found->second.chunks.size()) return {};
  return {&found->second.chunks[chunk], &found->second.meta};
}

void Client::AskFor(const KeyId& id, uint32_t chunk, uint64_t version) {
  Ask(id, &keys_.at(id), chunk, version);
}

}  // namespace tkv
