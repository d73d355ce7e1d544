// Durations that users give.  They saturate, so that the present plus a few of them never
// overflows.

#pragma once

#include <chrono>
#include <cmath>
#include <string_view>

#include "base/format.h"

namespace tkv {

// A century.  Longer waits are cut to it, so that a deadline fits into nanoseconds.
inline constexpr std::chrono::milliseconds kLongestWait{std::chrono::hours{24 * 365 * 100}};

// Returns a duration in nanoseconds, at most a century.
template <typename Duration>
constexpr std::chrono::nanoseconds Saturated(Duration duration) {
  return duration >= kLongestWait ? std::chrono::nanoseconds(kLongestWait)
                                  : std::chrono::duration_cast<std::chrono::nanoseconds>(duration);
}

// Returns the end of a wait that begins now.
template <typename Duration>
std::chrono::steady_clock::time_point DeadlineAfter(Duration longest) {
  return std::chrono::steady_clock::now() + Saturated(longest);
}

// Converts seconds as a user writes them; infinity becomes a century.
//   throws  kInvalidArgument  negative, or no number; the message names the verb and the argument
inline std::chrono::nanoseconds FromSeconds(double seconds, std::string_view verb,
                                            std::string_view argument) {
  if (std::isnan(seconds) || seconds < 0) {
    throw Fail(Code::kInvalidArgument, "{}: {}={}, a number of seconds from 0 on is needed", verb,
               argument, seconds);
  }
  return Saturated(std::chrono::duration<double>(seconds));
}

// Converts seconds as FromSeconds does, but to whole milliseconds, rounded up.
inline std::chrono::milliseconds MillisecondsFromSeconds(double seconds, std::string_view verb,
                                                         std::string_view argument) {
  return std::chrono::ceil<std::chrono::milliseconds>(FromSeconds(seconds, verb, argument));
}

}  // namespace tkv
