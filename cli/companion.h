// A process that a subcommand starts for itself, tells things and listens to.

#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "spawn.h"

namespace tkv::cli {

class Companion {
 public:
  //   throws  as Spawn
  Companion(SpawnOptions options, std::chrono::seconds patience);
  ~Companion();
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;

  void Tell(const std::string& text) const;
  // Nothing where it has ended, says nothing more in time, or too much without an end of a line.
  std::optional<std::string> Line();
  // Whether it has said nothing for the whole patience, so that the last line did not come.
  bool is_silent() const { return is_silent_; }
  std::chrono::seconds patience() const { return patience_; }  // for a line
  // Closes its input and ends it where it does not do so itself; its exit status.
  //   blocks  at most two seconds
  int Close();
  // Closes it; what it had said that no line has given, without the last end of a line.
  std::string CloseAndRead();

 private:
  bool Read();

  const std::chrono::seconds patience_;
  const Watchdog* const watchdog_;
  Spawned process_;
  int status_ = 0;
  std::string said_;
  bool is_silent_ = false;
};

}  // namespace tkv::cli
