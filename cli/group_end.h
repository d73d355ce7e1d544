// The end of a process group whose leader is a child of this process.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>

namespace tkv::cli {

inline constexpr const char* kRestWasKilled =
    "processes that it had started still ran 2 s later, and were killed";

// Waits, without blocking, until a leader has ended and its group with it.  A leader that exits may
// leave processes that still write its last lines, such as `tee` of a shell script.  They have
// kRestMax to end.  Then the rest is killed; after a leader that a signal killed, at once.
class GroupEnd {
 public:
  static constexpr std::chrono::seconds kRestMax{2};

  // Returns the leader's status, as waitpid, once the group has ended.  Call it again until then.
  std::optional<int> Poll(pid_t leader);
  // Returns true if processes were killed after the leader had exited.
  bool has_killed_rest() const { return has_killed_rest_; }

 private:
  std::optional<int> status_;  // of the leader
  std::chrono::steady_clock::time_point kill_at_;
  bool has_killed_rest_ = false;
};

}  // namespace tkv::cli
