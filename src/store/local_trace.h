// The trace of a store of one process.

#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include <boost/unordered/unordered_flat_map.hpp>

#include "store/claim.h"
#include "store/trace_file.h"
#include "trace/recorder.h"

namespace tkv {

// A recorder of the spans of a store's calls.  Thread-safe.
class LocalTrace {
 public:
  void Start();
  void Pause();
  //   throws  kFailedPrecondition (no trace has begun), and as WriteTraceFile
  KVStore::TraceInfo Write(const std::string& file);

  // Records the consecutive parts of a call.  Parts of a call that throws are not recorded.  A part
  // has taken effect when it is noted: without memory its span counts as lost.
  class Call {
   public:
    Call(LocalTrace* trace, const Claim& claim) : trace_(trace), claim_(claim) {
      if (trace->is_on_.load(std::memory_order_relaxed)) begin_ = Now();
    }
    // Records a span of the pushed keys, from the previous span or the call's begin until now.
    void NotePush() noexcept { Note(Span::Kind::kPush, claim_.push_groups); }
    // Records a span of the pulled keys.
    void NotePull() noexcept { Note(Span::Kind::kPull, claim_.pull_groups); }

   private:
    // `groups` are the indices of the span's keys in the claim; an index may appear more than once.
    void Note(Span::Kind kind, const SmallVector<size_t>& groups) noexcept {
      if (begin_ != 0) trace_->Note(kind, claim_, groups, &begin_);
    }

    LocalTrace* const trace_;
    const Claim& claim_;
    int64_t begin_ = 0;  // 0: the call is not traced
  };

 private:
  static int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
  void Note(Span::Kind kind, const Claim& claim, const SmallVector<size_t>& groups,
            int64_t* begin) noexcept;
  void Add(const Claim& claim, const SmallVector<size_t>& groups, Span span);

  std::atomic<bool> is_on_{false};
  std::mutex mutex_;  // protects the members below
  bool has_begun_ = false;
  uint64_t begin_ = 0;  // number of the first span of this trace
  uint64_t lost_ = 0;   // spans of this trace that there was no memory for
  Recorder recorder_;
  boost::unordered_flat_map<std::string, uint64_t> numbers_;  // numbers of key names, from 1 on
};

}  // namespace tkv
