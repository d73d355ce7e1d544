// TKV_CHECK: for bugs of this library only.  A fault that a user, a peer, a disk or a network can
// cause throws an Error with its own code.

#pragma once

#include <source_location>
#include <type_traits>

#include "base/format.h"

namespace tkv {

[[noreturn]] void CheckFailed(const char* expression, const char* file, unsigned line);

// Lowers a counter of things under way.  A counter that would fall below zero is a bug of this
// library.  The Error ends the session or the job, not the process.
template <typename T>
void Drop(T* counter, std::type_identity_t<T> by = 1,
          std::source_location where = std::source_location::current()) {
  if (*counter < by) CheckFailed("a counter falls below 0", where.file_name(), where.line());
  *counter = static_cast<T>(*counter - by);
}

}  // namespace tkv

#define TKV_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::tkv::CheckFailed(#condition, __FILE__, __LINE__))
