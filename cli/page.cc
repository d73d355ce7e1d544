#include "page.h"

#include <algorithm>
#include <utility>

namespace tkv::cli {

namespace {

constexpr const char* kErase = "\r\x1b[K";  // the line of a terminal

}  // namespace

std::string Page::EndLine() {
  is_bar_ = false;
  return std::exchange(writer_, std::nullopt) ? "\n" : "";
}

// Makes room for the text of another writer.
std::string Page::Interrupt() {
  const bool is_overwritten = is_terminal_ && is_bar_;
  const std::string end = EndLine();
  return is_overwritten ? kErase : end;
}

std::string Page::Shown(int writer, std::string_view name, std::string_view text) {
  std::string shown;
  shown.reserve(text.size() + name.size() + 1);  // of one line
  if (writer_ != writer && !text.empty()) shown += Interrupt();
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\n\r"), text.size());
    const bool ends_line = end < text.size() && text[end] == '\n';
    const bool returns = end < text.size() && !ends_line;
    const bool begins = !writer_ || is_rewritten_;
    if (end > 0 || (ends_line && !writer_)) {
      if (begins) shown += name;
      shown += text.substr(0, end);
      is_bar_ = is_bar_ || (writer_ && is_rewritten_);
      writer_ = writer;
      is_rewritten_ = false;
    }
    if (returns && writer_) {  // an empty line needs no return
      shown += '\r';
      is_rewritten_ = true;
    }
    if (ends_line) shown += EndLine();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return shown;
}

}  // namespace tkv::cli
