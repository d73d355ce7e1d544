#include "client/questions.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace tkv {

// Returns the link to a server that is asked a question.  If the server does not exist, is dead, or
// is too old for the question, fails the operation and returns null.
ServerLink* Questions::LinkToAsk(Op* op, uint32_t server, uint64_t feature, const char* lacks) {
  if (server >= core_.links.size()) {
    core_.Fail(op, Error(Code::kInvalidArgument, Format("there is no server {}", server)));
    return nullptr;
  }
  ServerLink& link = core_.links[server];
  if (const auto& dead = link.dead()) {
    core_.Fail(op, *dead);
    return nullptr;
  }
  if (link.incarnation() != 0 && (link.features() & feature) != feature) {
    core_.Fail(op, Error(Code::kUnimplemented,
                         Format("server {} {}; upgrade tensorkv where it runs", server, lacks)));
    return nullptr;
  }
  return &link;
}

void Questions::Send(Op* op, uint32_t server, Message message) {
  Outgoing outgoing;
  outgoing.op = op->id;
  outgoing.message = std::move(message);
  ++op->unaccepted;
  core_.Queue(server, std::move(outgoing));
}

void Questions::StartList(Op* op) {
  op->has_started = true;
  const Listing::Request& request = op->operation.As<Operation::List>()->request;
  if (LinkToAsk(op, request.server, kListFeature, "does not list its keys") == nullptr) return;
  Message list;
  list.type = Type::kList;
  list.key = request.after;
  Send(op, request.server, std::move(list));
}

void Questions::OnListAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = core_.ops.Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unaccepted);
  if (reply.type != Type::kListed) return core_.Fail(op, ErrorOf(reply));
  auto listing = std::make_shared<Listing>();
  listing->listed = DecodeListed(reply.extra);
  listing->last = reply.key;
  listing->has_more =
      reply.number != 0 && reply.key > op->operation.As<Operation::List>()->request.after;
  core_.FinishWith(op, std::shared_ptr<const Listing>(std::move(listing)));
}

void Questions::StartDescribe(Op* op) {
  op->has_started = true;
  const uint32_t server = ServerOf(core_.members.epoch.placement, op->key, 0);
  const bool with_rule = op->operation.As<Operation::Describe>()->with_rule;
  const uint64_t feature = with_rule ? kRuleFeature : 0;
  if (LinkToAsk(op, server, feature, "does not say how keys are updated") == nullptr) return;
  Message describe;
  describe.type = Type::kDescribe;
  describe.flags = with_rule ? kNoWait | kWithRule : kNoWait;
  describe.key = op->key;
  Send(op, server, std::move(describe));
}

void Questions::OnDescribeAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = core_.ops.Find(sent.op);
  Drop(&op->unaccepted);
  if (reply.type != Type::kMeta) return core_.Fail(op, ErrorOf(reply));
  KeyMeta meta = DecodeKeyMeta(reply.extra);
  if (meta.name != op->operation.key) return core_.Fail(op, Error(Code::kNotFound, "no such key"));
  core_.FinishWith(op, Outcome::Found{std::make_shared<const KeyMeta>(std::move(meta))});
}

void Questions::StartTrace(Op* op) {
  op->has_started = true;
  const Traced::Request& request = op->operation.As<Operation::Trace>()->request;
  if (LinkToAsk(op, request.server, kTraceFeature, "cannot be traced") == nullptr) return;
  Message trace;
  trace.type = Type::kTrace;
  trace.number = request.from;
  if (request.records) trace.flags |= kRecord;
  if (request.forgets) trace.flags |= kForget;
  Send(op, request.server, std::move(trace));
}

void Questions::OnTraceAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = core_.ops.Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unaccepted);
  if (reply.type != Type::kTraced) return core_.Fail(op, ErrorOf(reply));
  auto traced = std::make_shared<Traced>();
  traced->request = op->operation.As<Operation::Trace>()->request;
  traced->spans = DecodeSpans(reply.extra);
  traced->next = reply.number;
  traced->clock = static_cast<Time>(reply.need);
  traced->asked = op->begin;
  traced->answered = core_.now;
  core_.FinishWith(op, std::shared_ptr<const Traced>(std::move(traced)));
}

}  // namespace tkv
