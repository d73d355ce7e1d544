// Records which requests a server handles for which worker, while a worker asks for it.

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "server/shard.h"
#include "trace/recorder.h"

namespace tkv {

class ServerTrace final : public ShardListener {
 public:
  // Reads the time during an event.  Without a clock, spans begin and end at the times of events.
  using Clock = std::function<Time()>;

  bool is_on() const { return recorder_.is_on(); }
  void SetClock(Clock clock) { clock_ = std::move(clock); }
  // Returns the answer to a session's TRACE: switches recording on or off, and encodes the spans.
  Message Answer(LinkId link, const Message& request, Time now);
  void Closed(LinkId link);

  // ---- only while is_on()
  // Begins the span of a request.  Call it before the shard handles the message.
  void Received(LinkId link, const SessionId& session, const Message& message, Time now);
  // Ends the spans of all requests that these messages answer.
  void Sent(std::span<const Effects::Sending> sends);
  void Completed(const ShardCore& shard, const ChunkId& id, const Chunk& chunk) override;

 private:
  static constexpr size_t kWaitingMax = size_t{1} << 16;

  void End(LinkId link, uint64_t seq, Span::State state, const Message* value = nullptr);
  Time Now() const { return clock_ ? clock_() : now_; }

  Clock clock_;
  Recorder recorder_;
  std::map<LinkId, bool> users_;  // sessions that have sent TRACE; true: wants new spans
  boost::unordered_flat_map<std::pair<LinkId, uint64_t>, Span> waiting_;  // unanswered requests
  Time now_ = 0;
  Time began_ = 0;  // begin of the current message, or end of its last update
  Rank rank_ = kNoRank;
};

}  // namespace tkv
