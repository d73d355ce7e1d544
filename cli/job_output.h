// The output of a job's processes and the launcher's notes, as text or as JSON.

#pragma once

#include <array>
#include <string>
#include <string_view>

#include "json.h"
#include "lines.h"
#include "output.h"
#include "page.h"

namespace tkv::cli {

// Returns the sentence that says where a job is.
std::string WhereItIs(const std::string& url, const std::string& token_file);

// Prints stdout of the processes to stdout and stderr to stderr; as JSON both to stdout.
class JobOutput {
 public:
  explicit JobOutput(Form form);
  ~JobOutput();  // ends an unfinished line
  JobOutput(const JobOutput&) = delete;
  JobOutput& operator=(const JobOutput&) = delete;

  // Returns true if it prints unfinished lines.
  bool is_live() const { return form_ == Form::kText; }
  // Prints a text of a process.  The text may end within a line if this
  // object is live.
  //   index  identifies the process
  void PassOn(size_t index, const std::string& process, Stream stream, std::string_view text,
              const Output::Waiting& waiting);
  // The user has typed a whole line at the terminal.
  void LineIsTyped();
  // Prints where the job is: as a note, if that is wanted, or as an object.
  //   token_file  the file of its token; empty: none
  void Begin(const std::string& url, const std::string& token_file, bool is_wanted);
  // Prints a note of the launcher: to stderr, or as an object to stdout.
  void Note(const std::string& text);
  // Prints that output is lost, if there is no memory for a note.
  static void NoteLackOfMemory() noexcept;
  // Prints the exit status of the job, if the form is JSON.
  void End(int status);

  // Returns a text about the first failed write, once; else "".
  std::string TakeFailure();
  // Returns true if output is lost though its reader wants it.
  bool is_lost() const { return is_lost_; }
  Output& output() { return output_; }

 private:
  Page& PageOf(Stream stream) { return pages_[is_one_page_ ? 0 : static_cast<size_t>(stream)]; }

  const Form form_;
  const bool is_one_page_;     // stdout and stderr are the same file
  std::array<Page, 2> pages_;  // of stdout and stderr
  Output output_;
  bool has_failed_ = false;
  bool is_lost_ = false;
};

}  // namespace tkv::cli
