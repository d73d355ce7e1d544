// The output of a job's processes and the launcher's notes, as text or as JSON.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "output.h"

namespace tkv::cli {

class JobOutput {
 public:
  explicit JobOutput(Form form) : form_(form) {}

  // Prints lines of a process.
  void PassOn(const std::string& process, const std::vector<std::string>& lines,
              const Output::Waiting& waiting);
  // Prints a note of the launcher: to stderr, or as an object to stdout.
  void Note(const std::string& text);
  // Notes that lines of a process are lost for want of memory.  Never throws std::bad_alloc.
  void NoteLostLines(const std::string& process);
  // Prints the exit status of the job, if the form is JSON.
  void End(int status);

  // Returns a text about the first failed write, once; else "".
  std::string TakeFailure();
  // Returns true if output is lost though its reader wants it.
  bool is_lost() const { return is_lost_; }
  Output& output() { return output_; }

 private:
  // Returns a line of a process as it is printed.
  std::string Printed(const std::string& process, const std::string& line) const;

  const Form form_;
  Output output_;
  bool has_failed_ = false;
  bool is_lost_ = false;
};

}  // namespace tkv::cli
