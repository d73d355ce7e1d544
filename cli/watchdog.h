// Ends the children of a launcher that has died, and removes its secret.

#pragma once

#include <sys/types.h>

#include <string>

namespace tkv::cli {

// A process of its own that knows process groups and sees the launcher's end of a pipe close: then
// it ends them, within two seconds, and removes the file that it guards.
class Watchdog {
 public:
  //   throws  kUnavailable  what the system says
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void Add(pid_t group) const { Tell(group); }
  void Remove(pid_t group) const { Tell(-group); }
  // The file, which need not be there yet, and its folder go when the launcher does.  It guards one.
  //   throws  kUnavailable  the path is too long
  void Guard(const std::string& folder, const std::string& file) const;

 private:
  void Tell(pid_t message) const;

  int pipe_ = -1;
  pid_t pid_ = -1;
};

}  // namespace tkv::cli
