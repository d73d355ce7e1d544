#include "node/server_trace.h"

#include <algorithm>

namespace tkv {

Message ServerTrace::Answer(LinkId link, const Message& request, Time now) {
  now_ = now;
  if ((request.flags & kForget) != 0) {
    users_.erase(link);
  } else {
    users_[link] = (request.flags & kRecord) != 0;
  }
  recorder_.Record(
      std::any_of(users_.begin(), users_.end(), [](const auto& user) { return user.second; }));
  const std::vector<Span> spans = recorder_.From(request.number, kTracedBytesMax / kSpanBytes);
  if (users_.empty()) recorder_.Clear();
  if (!is_on()) waiting_.clear();
  const uint64_t first = std::clamp(request.number, recorder_.first(), recorder_.next());
  Message reply = Reply(request, Type::kTraced, first + spans.size());
  reply.extra = EncodeSpans(spans);
  reply.need = static_cast<uint64_t>(Now());
  return reply;
}

void ServerTrace::Closed(LinkId link) {
  users_.erase(link);
  recorder_.Record(
      std::any_of(users_.begin(), users_.end(), [](const auto& user) { return user.second; }));
  if (users_.empty()) recorder_.Clear();
  boost::unordered::erase_if(
      waiting_, [&](const auto& waiting) { return waiting.first.first == link || !is_on(); });
}

void ServerTrace::Received(LinkId link, const SessionId& session, const Message& message,
                           Time now) {
  now_ = now;
  began_ = Now();
  rank_ = session.rank;
  Span span;
  switch (message.type) {
    case Type::kPush:
      span.kind = Span::Kind::kPush;
      span.bytes = message.body.size;
      break;
    case Type::kPull:
      span.kind = Span::Kind::kPull;
      break;
    case Type::kInit:
    case Type::kDelete:
    case Type::kRestore:
      span.bytes = message.body.size;
      break;
    case Type::kCancel:
      return End(link, message.number, Span::State::kFailed);
    default:
      return;
  }
  if (waiting_.size() >= kWaitingMax) return;
  span.begin = began_;
  span.key_low = message.key.low;
  span.key_high = message.key.high;
  span.number = message.number;
  span.chunk = message.chunk;
  span.rank = session.rank;
  waiting_.try_emplace({link, message.seq}, span);
}

void ServerTrace::Sent(std::span<const Effects::Sending> sends) {
  for (const Effects::Sending& sending : sends) {
    const Message& reply = sending.message;
    if (!IsReply(reply.type)) continue;
    const bool failed = reply.type == Type::kError;
    End(sending.link, reply.seq, failed ? Span::State::kFailed : Span::State::kDone,
        reply.type == Type::kValue ? &reply : nullptr);
  }
}

// Ends the span of a request that was answered or cancelled.
void ServerTrace::End(LinkId link, uint64_t seq, Span::State state, const Message* value) {
  const auto found = waiting_.find({link, seq});
  if (found == waiting_.end()) return;
  Span span = found->second;
  waiting_.erase(found);
  span.nanoseconds = Now() - span.begin;
  span.state = state;
  if (value != nullptr) {
    span.bytes = value->body.size;
    span.number = value->number;
  }
  recorder_.Add(span);
}

void ServerTrace::Completed(const ShardCore&, const ChunkId& id, const Chunk& chunk) {
  Span span;
  span.kind = Span::Kind::kUpdate;
  span.begin = began_;
  span.nanoseconds = Now() - began_;
  span.key_low = id.key.low;
  span.key_high = id.key.high;
  span.number = chunk.version;
  span.bytes = chunk.elements * ItemSize(chunk.dtype);
  span.chunk = id.chunk;
  span.rank = rank_;
  recorder_.Add(span);
  began_ += span.nanoseconds;  // another update may follow within the event
}

}  // namespace tkv
