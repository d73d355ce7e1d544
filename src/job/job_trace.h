// The trace of a worker: its own operations, and the work that servers record for it.

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

// Records the operations of a worker.  Guarded by the lock of its node.
class WorkerTrace {
 public:
  // Returns true if the ends of operations have to be reported here.  An operation that began while
  // recording was on is still recorded at its end.
  bool is_on() const { return recorder_.is_on() || !waiting_.empty(); }
  bool is_recording() const { return recorder_.is_on(); }
  void Record(bool on) { recorder_.Record(on); }
  void Began(OpId id, const Operation& operation, Rank rank, Time now);
  void Ended(const Outcome& outcome, Time now);
  // The operations recorded since the last Take: those that have ended, and those under way.
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
    bool is_pushpull = false;  // the push is recorded first
  };
  boost::unordered_flat_map<OpId, Waiting> waiting_;
  boost::unordered_flat_map<KeyId, std::string> names_;
};

// Starts, pauses and writes a trace, one call at a time.
class JobTrace {
 public:
  // Sends a request to a server and returns the answer.
  //   throws  the error of the operation
  using Ask = std::function<std::shared_ptr<const Traced>(Traced::Request)>;

  // Starts a trace, or resumes it after a pause.
  void Start(size_t servers, const Ask& ask);
  void Pause(const Ask& ask);
  // Writes the whole trace to a file and ends it.  A server that cannot be reached is left out.
  //   take  returns the operations that the worker has recorded
  KVStore::TraceInfo Write(const std::string& file, int rank, const Ask& ask,
                           const std::function<WorkerTrace::Noted()>& take);

 private:
  struct Server {
    uint64_t next = Traced::kNewest;
    uint64_t lost = 0;
    Time ahead = 0;
    // The shortest round trip; -1: never measured.
    Time best_trip = -1;
    std::vector<Span> spans;
    bool is_missing = false;
  };
  void Exchange(size_t server, Traced::Request request, const Ask& ask);
  void Collect(const Ask& ask);
  void Forget(const Ask& ask);

  std::mutex mutex_;
  std::vector<Server> servers_;  // empty: no trace has begun
  // The worker's own operations; kept here if a file could not be written.
  WorkerTrace::Noted noted_;
};

}  // namespace tkv
