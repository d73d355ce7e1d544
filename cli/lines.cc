#include "lines.h"

#include <algorithm>
#include <utility>

namespace tkv::cli {

std::string WithoutInfo(std::string_view text) {
  std::string others;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    const size_t after_time = std::min(line.find(' '), line.size());
    if (!line.substr(after_time).starts_with(" info tensorkv pid=")) others += line;
    text.remove_prefix(line.size());
  }
  return others;
}

void Lines::Add(std::string_view bytes, Time now) {
  if (text_.empty()) since_ = now;
  text_ += bytes;
}

void Lines::End() {
  const bool is_within_line = text_.empty() ? is_open_ : text_.back() != '\n';
  if (is_within_line) text_ += '\n';
}

std::string Lines::Take(bool is_live, Time now) {
  const size_t end = text_.find_last_of(is_live ? "\n\r" : "\n");
  std::string taken = text_.substr(0, end == std::string::npos ? 0 : end + 1);
  if (!taken.empty()) {
    text_.erase(0, taken.size());
    since_ = now;
  }
  const size_t longest = has_lost_ ? kShortBytesMax : is_live ? kLiveBytesMax : kBytesMax;
  if (text_.size() > longest || (is_live && now >= due())) {
    taken += text_;
    text_.clear();
    if (!is_live) taken += '\n';
  }
  if (!taken.empty()) is_open_ = taken.back() != '\n';
  return taken;
}

void Lines::LoseLine() noexcept {
  has_lost_ = true;
  const size_t end = text_.find('\n');
  text_.erase(0, end == std::string::npos ? end : end + 1);
  text_.shrink_to_fit();  // does nothing without memory
}

}  // namespace tkv::cli
