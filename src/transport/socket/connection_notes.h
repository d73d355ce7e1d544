// Notes on a connection that other classes of its endpoint keep.

#pragma once

#include <cstdint>

namespace tkv {

// The stage of trust of a peer; each kind has a budget of its own (budgets.h).
enum class Standing : uint8_t { kNone, kUnixStranger, kTcpStranger, kGuest, kMember };

// The notes on one connection, which uses none of them itself.
struct ConnectionNotes {
  // Changed only by Admission.
  Standing standing = Standing::kNone;
  bool has_more_time = false;  // the deadline for WELCOME is set
  // Changed only by Reports: nanoseconds of waiting output until its next report; 0: no report yet.
  int64_t next_report = 0;
};

}  // namespace tkv
