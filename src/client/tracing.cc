// Requests for the spans that servers record of the work for all workers.

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"

namespace tkv {

// Starts at once: no other operation is ordered with this one.
void Client::StartTrace(Op* op) {
  op->has_started = true;
  const Traced::Request& request = op->operation.As<Operation::Trace>()->request;
  if (LinkToAsk(op, request.server, kTraceFeature, "cannot be traced") == nullptr) return;
  Outgoing trace;
  trace.op = op->id;
  trace.message.type = Type::kTrace;
  trace.message.number = request.from;
  if (request.records) trace.message.flags |= kRecord;
  if (request.forgets) trace.message.flags |= kForget;
  ++op->unaccepted;
  Queue(request.server, std::move(trace));
}

void Client::OnTraceAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unaccepted);
  if (reply.type != Type::kTraced) return Fail(op, ErrorOf(reply));
  auto traced = std::make_shared<Traced>();
  traced->request = op->operation.As<Operation::Trace>()->request;
  traced->spans = DecodeSpans(reply.extra);
  traced->next = reply.number;
  traced->clock = static_cast<Time>(reply.need);
  traced->asked = op->begin;
  traced->answered = now_;
  outcomes_.push_back({op->id, Outcome::Event::kDone, std::nullopt, 0,
                       std::shared_ptr<const Traced>(std::move(traced))});
  Erase(op);
}

}  // namespace tkv
