// What a server does for whom, noted while a worker wants it.

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
  // Reads the time while an event is handled; where there is none, spans begin and end with events.
  using Clock = std::function<Time()>;

  bool is_on() const { return recorder_.is_on(); }
  void SetClock(Clock clock) { clock_ = std::move(clock); }
  // The answer to a TRACE of a session.
  Message Answer(LinkId link, const Message& request, Time now);
  void Closed(LinkId link);

  // ---- while it is on
  // A message is about to be judged.
  void Received(LinkId link, const SessionId& session, const Message& message, Time now);
  // What came of it.
  void Sent(std::span<const Effects::Sending> sends);
  void Completed(const Shard& shard, const ChunkId& id, const Chunk& chunk) override;

 private:
  static constexpr size_t kWaitingMax = size_t{1} << 16;

  void End(LinkId link, uint64_t seq, Span::State state, const Message* value = nullptr);
  Time Now() const { return clock_ ? clock_() : now_; }

  Clock clock_;
  Recorder recorder_;
  std::map<LinkId, bool> users_;  // sessions that have asked, and whether they want more spans
  boost::unordered_flat_map<std::pair<LinkId, uint64_t>, Span> waiting_;  // for their answers
  Time now_ = 0;
  Time began_ = 0;  // the message that is judged
  Rank rank_ = kNoRank;
};

}  // namespace tkv
