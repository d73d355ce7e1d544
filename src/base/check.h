// TKV_CHECK: for bugs of our own only.  What a user, peer, disk or network can cause throws an
// Error with its own code.

#pragma once

#include "base/format.h"

namespace tkv {

[[noreturn]] void CheckFailed(const char* expression, const char* file, int line);

}  // namespace tkv

#define TKV_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::tkv::CheckFailed(#condition, __FILE__, __LINE__))
