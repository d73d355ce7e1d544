// A process of a launcher's: one of this machine, or an ssh with an agent behind it.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "output.h"
#include "spawn.h"
#include "tkv/job.h"

namespace tkv::cli {

class Child {
 public:
  Child(Job::Role role, int rank, std::string host)
      : role_(role), rank_(rank), host_(std::move(host)) {}
  ~Child();  // kills what still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Job::Role role() const { return role_; }
  int rank() const { return rank_; }
  const std::string& host() const { return host_; }  // of an agent; empty: this machine
  bool is_far() const { return !host_.empty(); }
  std::string name() const { return std::string(Name(role_)) + " " + std::to_string(rank_); }
  pid_t pid() const { return process_.pid; }
  int output() const { return process_.output; }  // can be read when it has said something
  bool is_running() const { return is_running_; }
  std::chrono::steady_clock::time_point started() const { return started_; }

  // Starts it, or starts it again.
  //   throws  as Spawn
  void Start(SpawnOptions options);
  // Its status, once, after it has ended.
  bool HasEnded(int* status);
  // What it has said is held back here or in the launcher's output, and has become so much that the
  // process is to wait until some of it is written.
  bool is_held() const { return line_.size() + *waiting >= kHeldBytesMax; }
  // The whole lines of one read; an unfinished one when it is too long or the last.  `is_more`
  // where another read may give more at once.
  std::vector<std::string> TakeLines(bool* is_more);
  // To its agent; false where that has gone.
  bool Tell(const std::string& items) const;
  // To it and all that it has started.
  void Signal(int signal) const;
  // To the group of its process here: for an agent, the ssh before it.
  void Kill() const;

  // What it says is kept in FOLDER/worker-0.log.
  //   throws  kUnavailable  what the system says
  void OpenLog(const std::string& folder, bool append);
  // To its log; false where that cannot be written any more.
  bool Log(const std::string& text);

  int restarts = 0;
  bool is_restorer = false;   // no worker yet: the first life of its rank
  bool has_restored = false;  // that life has put back its part of a snapshot
  bool is_waiting = false;    // to be started: others on its host come first, or it is too early
  std::chrono::steady_clock::time_point not_before;  // that it is started
  bool is_silent = false;                            // the head holds it for dead while it runs
  std::chrono::steady_clock::time_point end_at;      // where it is silent: that it is ended
  int told = 0;                                      // the last signal because of that
  bool is_greeted = true;                            // the agent there has been told what to do
  std::string before;                                // what came instead of a greeting
  const Output::Waiting waiting = std::make_shared<std::atomic<size_t>>(0);  // of it, to be written

  static constexpr size_t kHeldBytesMax = size_t{1} << 20;

 private:
  const Job::Role role_;
  const int rank_;
  const std::string host_;
  Spawned process_;
  bool is_running_ = false;
  std::chrono::steady_clock::time_point started_;
  std::string line_;  // that is not whole yet
  std::FILE* log_ = nullptr;
};

}  // namespace tkv::cli
