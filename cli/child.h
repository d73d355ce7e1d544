// The launcher's view of one process: a local process, or an ssh that runs an agent on another
// host.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "launch_plan.h"
#include "output.h"
#include "spawn.h"

namespace tkv::cli {

class Child {
 public:
  //   seat  has to live as long
  explicit Child(const Seat& seat) : seat_(seat) {}
  ~Child();  // kills the process if it still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const Seat& seat() const { return seat_; }
  pid_t pid() const { return process_.pid; }
  int output() const { return process_.output; }  // readable when the process has written
  bool is_running() const { return is_running_; }
  std::chrono::steady_clock::time_point started() const { return started_; }

  // Starts the process, or restarts it.
  //   throws  as Spawn
  void Start(SpawnOptions options);
  // Returns true once, after the process has ended, and sets its wait status.
  bool HasEnded(int* status);
  // Returns true if too much of the process's output is unwritten, in this object or in the
  // launcher's output.  The launcher then stops reading, so that the process blocks.
  bool is_held() const { return line_.size() + *waiting >= kHeldBytesMax; }
  // Reads once and returns the complete lines.  An unfinished line is returned if it is too long or
  // the output has ended.  Sets `is_more` if another read may return more at once.
  std::vector<std::string> TakeLines(bool* is_more);
  // Sends items to its agent.  Returns false if the agent is gone.
  bool Tell(const std::string& items) const;
  // Sends a signal to the process and its descendants.
  void Signal(int signal) const;
  // Kills the local process group.  With an agent, this is the ssh process.
  void Kill() const;

  // Opens the log FOLDER/worker-0.log, named after role and rank.
  //   throws  kUnavailable  the system's error
  void OpenLog(const std::string& folder, bool append);
  // Appends to the log.  Returns false if the log cannot be written any more.
  bool Log(const std::string& text);

  // Forgets the unfinished line and frees its memory.
  void DropLine() noexcept { std::string().swap(line_); }

  uint64_t life_before = 0;      // the newest life of its rank when its process was started
  bool has_lost_output = false;  // the launcher had no memory for some lines
  std::string before;            // output of the host before the greeting
  // Its bytes in the launcher's output.
  const Output::Waiting waiting = std::make_shared<std::atomic<size_t>>(0);

  static constexpr size_t kHeldBytesMax = size_t{1} << 20;

 private:
  const Seat& seat_;
  Spawned process_;
  bool is_running_ = false;
  std::chrono::steady_clock::time_point started_;
  std::string line_;  // an incomplete line
  std::FILE* log_ = nullptr;
};

}  // namespace tkv::cli
