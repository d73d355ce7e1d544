// Ends the children of a launcher that has died, and removes its secret.

#pragma once

#include <sys/types.h>

#include <string>

namespace tkv::cli {

// A separate process that knows the launcher's process groups.  When the launcher dies, its end of
// a pipe closes.  The watchdog then removes the guarded file and kills the groups, within two
// seconds.
class Watchdog {
 public:
  //   throws  kUnavailable  the system's error
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void Add(pid_t group) const { Tell(group); }
  void Remove(pid_t group) const { Tell(-group); }
  // Removes the file and its folder when the launcher ends.  The file need not exist yet.  Only the
  // last file given is guarded.
  //   throws  kUnavailable  the path is too long
  void Guard(const std::string& folder, const std::string& file) const;

 private:
  void Tell(pid_t message) const;

  int pipe_ = -1;
  pid_t pid_ = -1;
};

}  // namespace tkv::cli
