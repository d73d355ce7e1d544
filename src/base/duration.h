// Durations that users give.  They saturate: a moment plus a few of them never overflows.

#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>

#include "base/format.h"

namespace tkv {

// "For ever": a sum of two of them and a moment fits 64 bits of nanoseconds.
inline constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365 * 50);

// At most kLongest, in nanoseconds.
template <typename Rep, typename Period>
constexpr std::chrono::nanoseconds Saturated(std::chrono::duration<Rep, Period> duration) {
  if (duration > kLongest) return kLongest;
  return duration < -kLongest ? -kLongest
                              : std::chrono::duration_cast<std::chrono::nanoseconds>(duration);
}

// The moment at which a wait of so long is over.
template <typename Rep, typename Period>
std::chrono::steady_clock::time_point DeadlineAfter(std::chrono::duration<Rep, Period> duration) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(Saturated(duration));
}

// Seconds as a user writes them; infinity is kLongest.
//   throws  kInvalidArgument  negative, or no number; names the verb and the argument
inline std::chrono::nanoseconds FromSeconds(double seconds, std::string_view verb,
                                            std::string_view argument) {
  if (std::isnan(seconds) || seconds < 0) {
    throw Fail(Code::kInvalidArgument, "{}: {}={}, a number of seconds from 0 on is needed", verb,
               argument, seconds);
  }
  return Saturated(std::chrono::duration<double>(seconds));
}

// The same in whole milliseconds, rounded up.
inline std::chrono::milliseconds MillisecondsFromSeconds(double seconds, std::string_view verb,
                                                         std::string_view argument) {
  return std::chrono::ceil<std::chrono::milliseconds>(FromSeconds(seconds, verb, argument));
}

}  // namespace tkv
