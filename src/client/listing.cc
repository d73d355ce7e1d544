// Questions to servers about their keys: LIST and DESCRIBE.

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"

namespace tkv {

// Returns the link to a server that is asked a question.  If the server does not exist, is dead, or
// is too old for the question, fails the operation and returns null.
ServerLink* Client::LinkToAsk(Op* op, uint32_t server, uint64_t feature, const char* lacks) {
  if (server >= links_.size()) {
    Fail(op, Error(Code::kInvalidArgument, Format("there is no server {}", server)));
    return nullptr;
  }
  ServerLink& link = links_[server];
  if (const auto& dead = link.dead()) {
    Fail(op, *dead);
    return nullptr;
  }
  if (link.incarnation() != 0 && (link.features() & feature) != feature) {
    Fail(op, Error(Code::kUnimplemented,
                   Format("server {} {}; upgrade tensorkv where it runs", server, lacks)));
    return nullptr;
  }
  return &link;
}

// Starts at once: no other operation is ordered with this one.
void Client::StartList(Op* op) {
  op->has_started = true;
  const Listing::Request& request = op->operation.As<Operation::List>()->request;
  if (LinkToAsk(op, request.server, kListFeature, "does not list its keys") == nullptr) return;
  Outgoing list;
  list.op = op->id;
  list.message.type = Type::kList;
  list.message.key = request.after;
  ++op->unaccepted;
  Queue(request.server, std::move(list));
}

void Client::OnListAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unaccepted);
  if (reply.type != Type::kListed) return Fail(op, ErrorOf(reply));
  auto listing = std::make_shared<Listing>();
  listing->listed = DecodeListed(reply.extra);
  listing->last = reply.key;
  listing->has_more =
      reply.number != 0 && reply.key > op->operation.As<Operation::List>()->request.after;
  outcomes_.push_back({op->id, Outcome::Event::kDone, std::nullopt, 0,
                       std::shared_ptr<const Listing>(std::move(listing))});
  Erase(op);
}

// Asks the server for a key's meta, and leaves the client's state of the key unchanged.
void Client::StartDescribe(Op* op) {
  op->has_started = true;
  const uint32_t server = ServerOf(epoch_.placement, op->key, 0);
  const bool with_rule = op->operation.As<Operation::Describe>()->with_rule;
  const uint64_t feature = with_rule ? kRuleFeature : 0;
  if (LinkToAsk(op, server, feature, "does not say how keys are updated") == nullptr) return;
  Outgoing describe;
  describe.op = op->id;
  describe.message.type = Type::kDescribe;
  describe.message.flags = with_rule ? kNoWait | kWithRule : kNoWait;
  describe.message.key = op->key;
  ++op->unaccepted;
  Queue(server, std::move(describe));
}

void Client::OnDescribed(const Outgoing& sent, const Message& reply) {
  Op* const op = Find(sent.op);
  Drop(&op->unaccepted);
  if (reply.type != Type::kMeta) return Fail(op, ErrorOf(reply));
  KeyMeta meta = DecodeKeyMeta(reply.extra);
  if (meta.name != op->operation.key) return Fail(op, Error(Code::kNotFound, "no such key"));
  outcomes_.push_back({op->id, Outcome::Event::kDone, std::nullopt, 0,
                       Outcome::Found{std::make_shared<const KeyMeta>(std::move(meta))}});
  Erase(op);
}

}  // namespace tkv
