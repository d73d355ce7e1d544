// Ends the children of a launcher that has died.

#pragma once

#include <sys/types.h>

namespace tkv::cli {

// A process of its own that knows process groups and sees the launcher's end of a pipe close: then
// it ends them, within two seconds.
class Watchdog {
 public:
  //   throws  kUnavailable  what the system says
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void Add(pid_t group) const { Tell(group); }
  void Remove(pid_t group) const { Tell(-group); }

 private:
  void Tell(pid_t message) const;

  int pipe_ = -1;
  pid_t pid_ = -1;
};

}  // namespace tkv::cli
