// Passes the output of a job's processes on: to the launcher's own output, and to their logs.

#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "child.h"
#include "job_output.h"
#include "lines.h"

namespace tkv::cli {

class Relay {
 public:
  using Children = std::vector<std::unique_ptr<Child>>;

  struct Hooks {
    // Handles the lines by which a process talks to the launcher, and returns the others.  Two kinds
    // talk: an agent of another host until it has greeted, and a restorer of snapshots.
    std::function<std::string(size_t index, std::string_view lines)> take_lines_for_launcher;
    // Returns true if lines of level info go to the log file of the process, and not to the output.
    std::function<bool(const Seat& seat)> logs_info_alone;
    // Prints a note of the launcher, and logs it.
    std::function<void(const std::string& text)> note;
  };

  //   output, children  must outlive this object
  Relay(JobOutput* output, const Children* children, Hooks hooks)
      : output_(*output), children_(*children), hooks_(std::move(hooks)) {}

  // A file of a process that poll waits for.
  struct Source {
    size_t index;
    Stream stream;
  };
  // Appends the files of all processes whose output may be read now, and their sources.
  void AddFilesTo(std::vector<pollfd>* files, std::vector<Source>* sources) const;
  // Reads once from a process and passes its text on, so that a chatty process cannot starve the
  // others.  Returns true if there may be more.
  bool ReadOnce(Source source) const;
  // Reads the rest of an ended process's output, at most 64 times: a grandchild may hold the pipe
  // open and write for ever.
  void ReadAll(size_t index) const;
  // Passes on the unfinished lines whose time has come.
  void PassOnUnfinishedLines() const;
  // Returns the time at which the next unfinished line is passed on; Lines::kNever if there is none.
  Lines::Time due() const;

 private:
  bool IsLive(const Child& child) const;
  template <typename Get>
  void PassOnOrLose(Source source, Get get) const;
  void PassOn(Source source) const;
  void NoteLostLines(const Seat& seat) const;

  JobOutput& output_;
  const Children& children_;
  const Hooks hooks_;
};

}  // namespace tkv::cli
