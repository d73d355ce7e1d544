#include "client/pusher.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "client/ranges.h"

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

// Returns an error if the ids of a pull or the size of its `out` are wrong.
std::optional<Error> CheckIds(const ClientKey& key, const Operation::Pull& pull) {
  const codec::Contribution& ids = pull.ids;
  if (!key.meta.by_rows()) {
    if (ids.ends.empty()) return std::nullopt;
    return Fail(Code::kInvalidArgument, "rows of a key whose layout is {}", Name(key.meta.layout));
  }
  size_t begin = 0;
  bool is_right = ids.ends.size() == key.meta.chunk_count() && ids.ends.back() == ids.bytes.size &&
                  pull.out.size == ids.bytes.size / sizeof(uint64_t) * key.meta.row_bytes();
  for (const size_t end : ids.ends) {
    is_right = is_right && end >= begin && end % sizeof(uint64_t) == 0;
    begin = end;
  }
  if (is_right) return std::nullopt;
  return Fail(Code::kInvalidArgument, "{} bytes of ids in {} parts for {} bytes of rows",
              ids.bytes.size, ids.ends.size(), pull.out.size);
}

// Returns true if a pull needs this chunk.  By rows, a chunk without wanted rows is not needed.
bool IsAsked(const KeyMeta& meta, const Operation::Pull* pull, uint32_t chunk) {
  return !meta.by_rows() || PulledRange(meta, *pull, chunk).size > 0;
}

}  // namespace

// Returns true if the versions are known that a push of this round follows.  Else asks for them.
bool Pusher::KnowsVersionsFor(uint64_t round, const KeyId& id, ClientKey* key) {
  if (!key->is_sync() || round <= key->meta.staleness + 1) return true;
  const uint64_t follows = round - 1 - key->meta.staleness;
  bool known = true;
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    if (key->chunks[c].version >= follows) continue;
    known = false;
    core_.AskFor(id, c, follows);
  }
  return known;
}

bool Pusher::TryPush(const KeyId& id, ClientKey* key, Op* op) {
  const bool is_barrier = key->is_barrier;
  if (!is_barrier && core_.announcements.Holds(op->id)) return false;
  if (is_barrier && !core_.pushes.empty() && core_.pushes.front() < op->id) return false;
  if (key->pulls > 0) return false;  // no push overtakes a pull of its key
  if (core_.LacksRule(*key) && announcer_.Repeat(id, *key, op->operation.patience)) return false;
  const uint64_t round = key->round + 1;
  if (!KnowsVersionsFor(round, id, key)) return false;
  for (const KnownChunk& known : key->chunks) {
    if (const auto& dead = core_.links[known.server].dead()) {
      core_.Fail(op, *dead);
      return true;
    }
  }
  std::optional<Error> error;
  if (!is_barrier) error = codec::Cut(key->meta, op->operation.value());
  const Operation::Pull* const pull = op->operation.pull();  // null: a push alone
  if (!error && pull != nullptr) error = CheckIds(*key, *pull);
  if (error) {
    core_.Fail(op, *error);
    return true;
  }
  key->round = round;  // from here on the push has a round
  key->has_pushed = true;
  op->round = round;
  op->has_started = true;
  const bool exact = key->meta.exact_reads();
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    QueuePush(id, key, op, c);
    if ((pull != nullptr || is_barrier) && IsAsked(key->meta, pull, c)) {
      QueuePull(id, key, op, c, exact || is_barrier ? round : 0, is_barrier);
    }
  }
  return true;
}

void Pusher::QueuePush(const KeyId& id, ClientKey* key, Op* op, uint32_t chunk) {
  const ServerLink& link = core_.links[key->chunks[chunk].server];
  Outgoing push;
  push.op = op->id;
  push.priority = op->operation.priority;
  Message& message = push.message;
  message.type = Type::kPush;
  message.key = id;
  message.chunk = chunk;
  message.dtype = key->meta.dtype;
  message.number = op->round;
  if (key->is_barrier) {
    message.flags |= kBarrierKey;
    message.need = op->operation.store;
    AddTask(*op->operation.As<Operation::Barrier>(), link, &message);
  }
  const bool takes_steps = key->is_sync() && link.TakesSteps();
  if (const Operation::Push* const operation = op->operation.push()) {
    AddPush(*operation, takes_steps, link.TakesRules(), &message);
  }
  ++key->pushes;
  ++key->chunks[chunk].queued_pushes;
  ++op->unaccepted;
  core_.Queue(link.server(), std::move(push));
}

void Pusher::StartPulls(const KeyId& id, ClientKey* key, Op* op) {
  const Operation::Pull* const pull = op->operation.pull();
  if (pull != nullptr) {
    if (const auto error = CheckIds(*key, *pull)) return core_.Fail(op, *error);
  }
  for (const KnownChunk& known : key->chunks) {
    if (const auto& dead = core_.links[known.server].dead()) return core_.Fail(op, *dead);
  }
  if (op->operation.Is<Operation::Cut>() && key->is_uneven()) {
    return core_.Fail(op, key->Uneven());
  }
  op->has_started = true;
  op->versions.assign(key->chunks.size(), 0);
  const bool no_body = pull == nullptr;
  if (op->operation.Is<Operation::Cut>()) op->states.resize(key->chunks.size());
  const bool waits_for_round = key->is_sync() && (key->meta.exact_reads() || no_body);
  const uint64_t min_version = !core_.members.is_observer() && waits_for_round ? key->round : 0;
  for (uint32_t c = 0; c < key->chunks.size(); ++c) {
    if (!no_body && !IsAsked(key->meta, pull, c)) continue;
    QueuePull(id, key, op, c, min_version, no_body);
  }
  core_.FinishIfDone(op);  // a pull of no rows sends no message
}

void Pusher::QueuePull(const KeyId& id, ClientKey* key, Op* op, uint32_t chunk,
                       uint64_t min_version, bool no_body) {
  if (op->versions.empty()) op->versions.assign(key->chunks.size(), 0);
  Outgoing pull;
  pull.op = op->id;
  pull.priority = op->operation.priority;
  if (!no_body) {
    const Operation::Pull& operation = *op->operation.pull();
    pull.pull_bytes = PulledRange(key->meta, operation, chunk).size;
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
  core_.Queue(key->chunks[chunk].server, std::move(pull));
}

void Pusher::OnPushAnswer(const Outgoing& sent, const Message& reply) {
  ClientKey* const found = core_.keys.Find(sent.message.key);
  const bool failed = reply.type == Type::kError;
  if (found != nullptr) {
    ClientKey& key = *found;
    Drop(&key.pushes);
    core_.keys.Wake(sent.message.key);
    if (failed) {
      key.MarkStaleIfGone(ErrorOf(reply));
      if (key.is_sync()) {
        LosePush(sent.message.key, &key, sent.message.number, ErrorOf(reply));
      }
    } else {
      KnownChunk& known = key.chunks[sent.message.chunk];
      known.version = std::max(known.version, reply.number);
    }
  }
  Op* const op = core_.ops.Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unaccepted);
  if (failed) return core_.Fail(op, ErrorOf(reply));
  core_.FinishIfDone(op);
}

// Takes back the round of a push that has failed.  Some chunks may have got the push, so the key's
// current round has to be found again.
void Pusher::LosePush(const KeyId& id, ClientKey* key, uint64_t round, const Error& error) {
  key->must_join = true;
  if (key->lost_from == 0 || round < key->lost_from) key->lost_from = round;
  if (key->round >= round) {
    key->repeats_to = std::max(key->repeats_to, key->round);
    key->round = round - 1;
  }
  if (key->is_stale || key->pulls == 0) return;
  const auto [lost, is_first] =
      core_.lost_pushes.try_emplace(id, ClientCore::LostPush{round, error});
  if (!is_first && round < lost->second.round) lost->second = {round, error};
}

void Pusher::FailLostRounds() {
  if (core_.lost_pushes.empty()) return;
  const auto lost_pushes = std::exchange(core_.lost_pushes, {});
  std::set<OpId> waiting;
  core_.CancelWhere(
      [&](const Outgoing& pull) {
        const bool may_wait = pull.purpose == Purpose::kReady || pull.purpose == Purpose::kOp;
        if (!may_wait || !BlocksNextPush(pull.message)) return false;
        const auto lost = lost_pushes.find(pull.message.key);
        if (lost == lost_pushes.end() || pull.message.number < lost->second.round) return false;
        if (pull.purpose == Purpose::kReady) return true;
        const Op* const op = core_.ops.Find(pull.op);
        if (op == nullptr || op->unpulled == 0) return false;  // it is cancelled already
        waiting.insert(pull.op);
        return true;
      },
      false);
  for (const OpId id : waiting) {
    Op* const op = core_.ops.Find(id);
    if (op == nullptr) continue;
    op->unpulled = 0;
    const auto& [round, error] = lost_pushes.at(op->key);
    core_.Fail(op,
               Error(error.code(), Format("round {} lacks this worker's push, which has failed: {}",
                                          core_.keys.At(op->key).base + round, error.what())));
  }
}

void Pusher::OnPullAnswer(const Outgoing& sent, const Message& reply) {
  ClientKey* const found = core_.keys.Find(sent.message.key);
  if (found == nullptr) return;
  ClientKey& key = *found;
  Drop(&key.pulls);
  core_.keys.Wake(sent.message.key);
  const uint32_t chunk = sent.message.chunk;
  const bool failed = reply.type != Type::kValue;
  if (!failed) {
    key.chunks[chunk].version = std::max(key.chunks[chunk].version, reply.number);
    key.chunks[chunk].unbounded = false;
  }
  Op* const op = core_.ops.Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unpulled);
  if (failed) {
    const Error error = ErrorOf(reply);
    // A cut is refused with this code while another worker saves; the key still exists.
    const bool was_refused =
        op->operation.Is<Operation::Cut>() && error.code() == Code::kFailedPrecondition;
    core_.Fail(op, error);
    if (!was_refused) key.MarkStaleIfGone(error);
    return;
  }
  op->versions[chunk] = reply.number;
  if (op->operation.Is<Operation::Cut>()) {
    op->states[chunk] = DecodeChunkState(reply.extra);
    if (op->states[chunk].by_rows != key.meta.by_rows()) {
      return core_.Fail(op, CannotSaveRows(key.chunks[chunk].server));
    }
  }
  if (op->unpulled == 0 && PullAgain(sent.message.key, &key, op)) return;
  core_.FinishIfDone(op);
}

// An observer that got unequal versions pulls the chunks with older versions again.
bool Pusher::PullAgain(const KeyId& id, ClientKey* key, Op* op) {
  if (!core_.members.is_observer() || op->expired) return false;
  const uint64_t newest = *std::max_element(op->versions.begin(), op->versions.end());
  bool again = false;
  for (uint32_t c = 0; c < op->versions.size(); ++c) {
    if (op->versions[c] == newest) continue;
    if (!IsAsked(key->meta, op->operation.pull(), c)) continue;
    if (!again && ++op->tries > core_.options.observer_tries) {
      core_.Fail(op, Error(Code::kUnavailable,
                           Format("the chunks have had unequal versions {} times", op->tries)));
      return true;
    }
    again = true;
    QueuePull(id, key, op, c, newest, false);
  }
  return again;
}

void Pusher::OnReadyAnswer(const Outgoing& sent, uint32_t server, const Message& reply) {
  core_.EndAsk(sent.message, server);
  ClientKey* const found = core_.keys.Find(sent.message.key);
  if (found == nullptr) return;
  ClientKey& key = *found;
  KnownChunk& known = key.chunks[sent.message.chunk];
  Drop(&key.pulls);
  core_.keys.Wake(sent.message.key);
  if (reply.type == Type::kValue) {
    known.version = std::max(known.version, reply.number);
    return;
  }
  known.unbounded = true;
  key.MarkStaleIfGone(ErrorOf(reply));
  core_.FailFirstQueued(&key, ErrorOf(reply));
}

}  // namespace tkv
