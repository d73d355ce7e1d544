// The output of one stream of a process, between the pipe and the launcher's output.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tkv::cli {

enum class Stream : uint8_t { kOut, kErr };

// Returns a text without the lines that TensorKV logs at level info.
std::string WithoutInfo(std::string_view text);

// Holds back the unfinished line of a stream until it may be passed on.
//
// A live reader gets an unfinished line too: at once if it ends in a carriage return, as a frame of
// a progress bar does, and else after kAgeMax or if it is long.  Any other reader gets whole lines,
// and a line that is longer than kBytesMax in pieces.  After a loss all pieces are short.
class Lines {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::milliseconds kAgeMax{100};
  static constexpr size_t kBytesMax = size_t{1} << 18;
  static constexpr size_t kLiveBytesMax = size_t{1} << 16;
  static constexpr size_t kShortBytesMax = size_t{1} << 12;
  static constexpr Time kNever = Time::max();

  void Add(std::string_view bytes, Time now);
  // Ends the unfinished line, if there is one, with a newline.
  void End();
  // Returns the text that may be passed on.
  std::string Take(bool is_live, Time now);
  // Returns the time at which a live reader gets the unfinished line; kNever if there is none.
  Time due() const { return text_.empty() ? kNever : since_ + kAgeMax; }
  // Counts the age of the unfinished line from now on: its rest may not have been read.
  void Renew(Time now) { since_ = now; }
  size_t size() const { return text_.size(); }
  // Loses the first line, which may be long, and frees its memory.  Keeps the lines behind it.
  void LoseLine() noexcept;

 private:
  std::string text_;  // not passed on
  Time since_;        // the arrival of its first byte
  bool has_lost_ = false;
  bool is_open_ = false;  // the text that was passed on ends within a line
};

}  // namespace tkv::cli
