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
#include "page.h"

namespace tkv::cli {

class Relay {
 public:
  using Children = std::vector<std::unique_ptr<Child>>;

  struct Hooks {
    // Handles the lines of a process that are for the launcher, and returns the others.  Called
    // for an agent that has not greeted, and for a restorer.
    std::function<std::string(size_t index, std::string_view lines)> without_lines_for_us;
    // Returns true if lines of the level info stand in the process's log alone.
    std::function<bool(const Seat& seat)> has_events_in_its_file;
    // Prints a note of the launcher, and logs it.
    std::function<void(const std::string& text)> note;
  };

  //   output, children  have to live as long
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
  bool Drain(Source source) const;
  // Reads the rest of an ended process's output.  Bounded, because a grandchild may hold the pipe
  // open and write for ever.
  void DrainAll(size_t index) const;
  // Passes on the unfinished lines whose time has come.
  void PassOnUnfinishedLines() const;
  // Returns the time at which the next unfinished line is passed on.
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
