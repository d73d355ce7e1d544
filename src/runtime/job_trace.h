// The trace of a worker: what it does itself, and what the servers note for it.

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "client/client.h"
#include "tkv/kvstore.h"
#include "trace/chrome.h"
#include "trace/recorder.h"

namespace tkv {

// The operations of a worker.  Guarded by the lock of its node.
class WorkerTrace {
 public:
  // Whether ends are to be told; what has begun while it was recorded is noted when it ends.
  bool is_on() const { return recorder_.is_on() || !waiting_.empty(); }
  bool is_recording() const { return recorder_.is_on(); }
  void Record(bool on) { recorder_.Record(on); }
  void Began(OpId id, const Operation& operation, Rank rank, Time now);
  void Ended(const Outcome& outcome, Time now);
  // Moves what has been noted away, and what is under way.
  struct Noted {
    std::vector<Span> spans;
    uint64_t lost = 0;
    boost::unordered_flat_map<KeyId, std::string> names;  // as messages show them
  };
  Noted Take(Time now);

 private:
  Recorder recorder_;
  uint64_t taken_ = 0;
  struct Waiting {
    Span span;
    bool is_pushpull = false;  // whose push comes first
  };
  boost::unordered_flat_map<OpId, Waiting> waiting_;
  boost::unordered_flat_map<KeyId, std::string> names_;
};

// Start, pause and write, one at a time.
class JobTrace {
 public:
  // Asks a server.
  //   throws  what the operation ends with
  using Ask = std::function<std::shared_ptr<const Traced>(Traced::Request)>;

  // Also goes on after a pause.
  void Start(size_t servers, const Ask& ask);
  void Pause(const Ask& ask);
  // Writes all of it to a file and ends the trace.  A server that cannot be reached is left out.
  //   take  what the worker has noted
  KVStore::TraceInfo Write(const std::string& file, int rank, const Ask& ask,
                           const std::function<WorkerTrace::Noted()>& take);

 private:
  struct Server {
    uint64_t next = Traced::kNewest;
    uint64_t lost = 0;
    Time ahead = 0;
    Time best_trip = -1;  // there and back; -1: never measured
    std::vector<Span> spans;
    bool is_missing = false;
  };
  void Exchange(size_t server, Traced::Request request, const Ask& ask);
  void Collect(const Ask& ask);
  void Forget(const Ask& ask);

  std::mutex mutex_;
  std::vector<Server> servers_;  // none: no trace has begun
  WorkerTrace::Noted noted_;     // of the worker, where a file could not be written
};

}  // namespace tkv
