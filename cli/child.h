// The launcher's view of one process: a local process, or an ssh that runs an agent on another
// host.

#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "group_end.h"
#include "launch_plan.h"
#include "lines.h"
#include "output.h"
#include "page.h"
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
  // Returns a file that is readable when the process has written; -1 after the end of the stream.
  int file(Stream stream) const { return streams_[static_cast<size_t>(stream)].file; }
  bool is_running() const { return is_running_; }
  std::chrono::steady_clock::time_point started() const { return started_; }

  // Starts the process, or restarts it.
  //   can_type  the user's typing is its stdin
  //   throws  as Spawn
  void Start(SpawnOptions options, bool can_type);
  // Returns true once, after the process has ended, and sets its wait status.
  bool HasEnded(int* status);
  // Returns true if this machine had to kill processes that the ended one had started.
  bool has_killed_rest() const { return end_.has_killed_rest() && !seat_.is_far(); }
  // Returns true if too much of the process's output is unwritten, in this object or in the
  // launcher's output.  The launcher then stops reading, so that the process blocks.
  bool is_held() const;
  // Reads once.  Returns true if another read may return more at once.
  bool Read(Stream stream);
  // Ends the unfinished lines of both streams.
  void EndLines();
  // Returns text that the process has written and that may be passed on, as Lines::Take.
  std::string Take(Stream stream, bool is_live);
  // Returns the time at which Take returns an unfinished line to a live reader.
  Lines::Time due(Stream stream) const;
  // Restarts that time, because the launcher does not read from the process now.
  void Renew(Lines::Time now);
  // Sends items to its agent.  Returns false if the agent is gone.
  bool Tell(const std::string& items) const;
  // Returns true if Type reaches the process.
  bool CanType() const { return is_running_ && can_type_ && seat_.is_greeted; }
  // Returns a file that is writable when the process can take more typed text; -1: always.
  int typing() const { return seat_.is_far() ? -1 : process_.input; }
  // Passes on text that the user has typed, at most PIPE_BUF bytes; "" is the end of it.
  void Type(const std::string& text);
  // Sends a signal, as SignalGroup does.
  void Signal(int signal) const;
  // Kills the local process group.  With an agent, this is the ssh process.
  void Kill() const;

  // Opens the log FOLDER/worker-0.log, named after role and rank.
  //   throws  kUnavailable  the system's error
  void OpenLog(const std::string& folder, bool append);
  // Appends to the log.  Returns false if the log cannot be written any more.
  bool Log(Stream stream, std::string_view text);

  // Loses the first line of each stream that was not passed on, for want of memory.  The process
  // has little text in the launcher from then on.
  void LoseLines() noexcept;

  uint64_t life_before = 0;      // the newest life of its rank when its process was started
  bool has_lost_output = false;  // the launcher had no memory for some lines
  std::string before;            // output of the host before the greeting
  // Its bytes in the launcher's output.
  const Output::Waiting waiting = std::make_shared<std::atomic<size_t>>(0);

  static constexpr size_t kHeldBytesMax = size_t{1} << 20;
  // The limit of unwritten text after the launcher had no memory, so that it need not lose more.
  static constexpr size_t kUnwrittenBytesWithoutMemory = size_t{1} << 16;

 private:
  struct Source {
    int file = -1;
    Lines lines;
  };
  Source& Of(Stream stream) { return streams_[static_cast<size_t>(stream)]; }

  const Seat& seat_;
  Spawned process_;
  bool is_running_ = false;
  GroupEnd end_;
  bool can_type_ = false;
  std::chrono::steady_clock::time_point started_;
  std::array<Source, 2> streams_;
  std::FILE* log_ = nullptr;
  Page log_page_;
};

}  // namespace tkv::cli
