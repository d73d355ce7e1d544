// Starts threads.  If the system has no thread left, the error names the work.

#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/format.h"

namespace tkv {

// Runs f on a new thread.
//   what    the work of the thread, for the error
//   throws  kResourceExhausted  the system has no thread, or no memory for its stack
template <typename F>
std::thread StartThread(std::string_view what, F f) {
  try {
    return std::thread(std::move(f));
  } catch (const std::system_error& error) {
    throw Fail(Code::kResourceExhausted, "no thread to {}: {}", what, error.code().message());
  }
}

}  // namespace tkv
