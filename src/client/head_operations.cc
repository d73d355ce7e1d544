#include "client/head_operations.h"

#include <set>
#include <utility>

#include "base/format.h"

namespace tkv {

void HeadOperations::Advance(Effects* effects) {
  AdvanceLeaves(effects);
  AdvanceNewestEpochs(effects);
}

// Says goodbye to the head when all earlier pushes are accepted.
void HeadOperations::AdvanceLeaves(Effects* effects) {
  for (const OpId id : core_.leaves) {
    Op& op = *core_.ops.Find(id);
    if (op.has_started || (!core_.pushes.empty() && core_.pushes.front() < id)) continue;
    op.has_started = true;
    Message goodbye;
    goodbye.type = Type::kGoodbye;
    goodbye.number = op.operation.As<Operation::Leave>()->failure ? 1 : 0;
    goodbye.seq = id;
    core_.head.Send(std::move(goodbye), effects);
  }
}

// Asks the head for the number of its EPOCH, and waits until this client has that EPOCH.  The head
// sends it by itself.
void HeadOperations::AdvanceNewestEpochs(Effects* effects) {
  const uint64_t number = core_.members.epoch.number;
  const std::set<OpId> waiting = core_.newest_epochs;  // a copy: operations may end here
  for (const OpId id : waiting) {
    Op& op = *core_.ops.Find(id);
    if (op.has_started) {
      if (op.round > 0 && number >= op.round) core_.Finish(&op);
      continue;
    }
    op.has_started = true;
    Message ping;
    ping.type = Type::kPing;
    ping.number = number;
    ping.seq = id;
    core_.head.Send(std::move(ping), effects);
  }
}

bool HeadOperations::TakeAnswer(const Message& message) {
  const bool is_answer = message.type == Type::kOk || message.type == Type::kPong;
  if (!is_answer || !core_.head.Has(message.seq)) return false;
  Op* const op = core_.ops.Find(message.seq);
  if (op->operation.Is<Operation::NewestEpoch>()) {
    op->round = message.number;  // the head may end before it has sent that EPOCH
  } else {
    if (op->operation.Is<Operation::Leave>()) core_.has_left = true;
    core_.Finish(op);
  }
  return true;
}

void HeadOperations::FailRequests(Effects* effects) {
  const Error error = core_.head.WhyNone(core_.now);
  for (const OpId id : core_.head.Operations()) {
    Op& op = *core_.ops.Find(id);
    if (op.operation.Is<Operation::Control>()) {
      announcer_.Withdraw(&op, error);
      continue;
    }
    if (op.operation.Is<Operation::Leave>()) {
      effects->Log(Level::kWarning,
                   Format("{}: left without a word to the others: {}", op.Prefix(), error.what()));
      core_.has_left = true;
    }
    core_.Fail(&op, error);
  }
}

}  // namespace tkv
