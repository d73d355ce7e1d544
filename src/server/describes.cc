#include "server/describes.h"

#include <utility>

#include "base/format.h"

namespace tkv {
namespace {

// Returns the rule of a chunk with the hyperparameters of its last update.  No program means
// assignment.
UpdateSpec RunningRule(const Chunk& chunk) {
  if (chunk.rule == nullptr) return {};
  UpdateSpec spec = chunk.rule->spec();
  if (chunk.params.size() == spec.params.size()) spec.params = chunk.params;
  return spec;
}

}  // namespace

void Describes::OnDescribe(Session* session, Message& message, Effects* effects) {
  core_.ForgetDescribe(session, message.seq);  // it may be a repetition
  const bool asks_to_make = (message.flags & kMayMake) != 0 && !core_.keys.contains(message.key);
  if (asks_to_make && core_.grants.size() >= core_.options.parked_max &&
      !core_.grants.Has(message.key)) {
    return replies_.AnswerError(
        session, message, Code::kResourceExhausted,
        Format("{} keys are being created at the server", core_.grants.size()), effects);
  }
  if (Answer(*session, message, effects)) return;
  if (session->parked >= core_.options.parked_max) {
    return replies_.AnswerTooMany(session, message, effects);
  }
  ++session->parked;
  message.body = {};
  message.extra = {};  // nothing reads it, and its sender chooses its size
  core_.describes.Add(session->id, std::move(message));
}

void Describes::Recheck(Effects* effects) { AnswerAll(core_.describes.All(), effects); }

void Describes::AnswerAllOf(const KeyId& key, Effects* effects) {
  AnswerAll(core_.describes.Of(key), effects);
}

void Describes::AnswerAll(const std::vector<WaitingDescribes::Waiter>& waiters, Effects* effects) {
  for (const WaitingDescribes::Waiter& waiter : waiters) {
    Session& session = core_.sessions.At(waiter.first);
    if (Answer(session, core_.describes.At(waiter), effects)) {
      core_.ForgetDescribe(&session, waiter.second);
    }
  }
}

bool Describes::Answer(const Session& session, const Message& request, Effects* effects) {
  const bool may_make = (request.flags & kMayMake) != 0;
  const uint32_t store = may_make ? request.chunk : kNoStore;
  Message reply;
  if (core_.chunks.contains({request.key, 0})) {
    reply = Reply(request, Type::kMeta);
    KeyMeta meta = core_.keys.at(request.key).meta;
    if ((request.flags & kWithRule) != 0) meta.own = RunningRule(core_.chunks.at({request.key, 0}));
    reply.extra = Encode(meta);
  } else if (may_make && core_.dropped.Has(store)) {
    reply = ErrorReply(request.seq, Code::kFailedPrecondition, StoreIsOver(store));
  } else if (const auto grant = may_make ? Grant(session.id, request) : std::nullopt) {
    reply = Reply(request, Type::kOk, *grant);
  } else if (!may_make && (request.flags & kNoWait) != 0) {
    reply = ErrorReply(request.seq, Code::kNotFound, "no such key");
  } else if (!core_.epoch().workers.empty() && MakerOf(store) == kNoRank &&
             (core_.HasClosed(0, store) || !core_.members.WaitsForLife(session.id, 0))) {
    reply = ErrorReply(request.seq, Code::kUnavailable,
                       Format("worker 0, which creates keys, {}", WhyNoMaker(store)));
  } else {
    return false;
  }
  if (session.link != kNoLink) effects->Send(session.link, std::move(reply));
  return true;
}

bool Describes::MayMake(const SessionId& sender, const Message& init) const {
  if (init.number == 0 || init.chunk != 0) return sender.rank == 0 || init.number != 0;
  const KeyGrant* const grant = core_.grants.Find(init.key);
  return grant != nullptr && grant->maker == sender && grant->number == init.number;
}

void Describes::DropGrants() {
  core_.grants.DropMakers(
      [&](const SessionId& maker) { return core_.members.IsOver(Role::kWorker, maker); });
}

Rank Describes::MakerOf(uint32_t store) const {
  const bool has_heirs = core_.epoch().policy == Epoch::Policy::kContinue;
  for (Rank rank = 0; static_cast<size_t>(rank) < core_.epoch().workers.size(); ++rank) {
    const bool is_out =
        core_.HasClosed(rank, store) || core_.epoch().IsGone(rank) || !core_.epoch().IsMember(rank);
    if (!is_out) return rank;
    if (!has_heirs) break;
  }
  return kNoRank;
}

std::optional<uint64_t> Describes::Grant(const SessionId& asker, const Message& describe) {
  if (asker.rank == kNoRank || MakerOf(describe.chunk) != asker.rank) return std::nullopt;
  const KeyGrant* const grant = core_.grants.Find(describe.key);
  if (grant != nullptr && grant->maker == asker) return grant->number;
  const bool is_taken = grant != nullptr && !core_.members.IsOver(Role::kWorker, grant->maker) &&
                        !core_.HasClosed(grant->maker.rank, describe.chunk);
  if (is_taken) return std::nullopt;
  return core_.grants.Give(describe.key, asker, describe.chunk).number;
}

std::string Describes::WhyNoMaker(uint32_t store) const {
  if (core_.HasClosed(0, store)) return Format("has closed store {}", store);
  return core_.epoch().workers[0].state == Epoch::State::kLeft ? "has left" : "is dead";
}

}  // namespace tkv
