// The stdin of a job: the worker that has it, and the way of its bytes.
//
// A file or a pipe becomes the worker's own stdin.  A terminal can be read only by the process
// group in its foreground, which is the launcher's.  So the launcher reads it, and passes lines on.

#pragma once

#include <optional>
#include <string>

#include "launch_plan.h"

namespace tkv::cli {

class Input {
 public:
  Input();

  // Chooses the worker.
  //   given  a rank or "none", from the user; empty: rank 0
  //   throws  kInvalidArgument  no such rank
  void Choose(const std::string& given, int workers);
  // Returns true if this process has the stdin.  A restorer reads nothing.
  bool IsFor(const Seat& seat) const;
  std::optional<int> rank() const { return rank_; }
  bool is_terminal() const { return is_terminal_; }

  // Returns true if the terminal may be read now: the launcher is in its foreground.
  bool IsReadable() const;
  // Reads once from the terminal, at most a line.  Returns "" at the end of the input, and nothing
  // if there is no input now.
  std::optional<std::string> Read();

 private:
  const bool is_terminal_;
  std::optional<int> rank_;
  bool is_lost_ = false;  // the terminal is gone
};

}  // namespace tkv::cli
