// A file that shows the output of several processes, such as a terminal.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tkv::cli {

// Begins each line with the name of its writer, and continues a line only by its own writer.
//
// A progress bar returns to the beginning of its line and writes the line again.  The name is then
// written again too.  On a terminal, another writer overwrites such a line instead of beginning a
// new one, because the bar is drawn again anyway.
class Page {
 public:
  explicit Page(bool is_terminal = false) : is_terminal_(is_terminal) {}

  // Returns a text of a writer as the file shows it.  The text may end within a line.
  //   writer  identifies one stream of a process
  //   name    the beginning of each of its lines; may be empty
  std::string Shown(int writer, std::string_view name, std::string_view text);
  // Returns the newline that ends an unfinished line; "" if there is none.
  std::string EndLine();
  // The user has typed a whole line, whose newline the terminal has shown.
  void LineIsTyped() { writer_.reset(); }

 private:
  std::string Interrupt();

  const bool is_terminal_;
  std::optional<int> writer_;  // of the unfinished line
  bool is_bar_ = false;        // its writer has written that line more than once
  bool is_rewritten_ = false;  // the next text begins the unfinished line again
};

}  // namespace tkv::cli
