// A helper process of a subcommand, which writes to it and reads its lines.

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
  // Returns the next line.  Returns nullopt if the process ended, sent nothing in time, or sent too
  // much without a newline.
  std::optional<std::string> Line();
  // Returns true if the last call of Line timed out.
  bool is_silent() const { return is_silent_; }
  std::chrono::seconds patience() const { return patience_; }  // of Line, for one line
  // Closes its input, waits for its end and kills it after two seconds.  Returns its exit status.
  //   blocks  at most two seconds
  int Close();
  // Closes it.  Returns the output that Line has not returned, without trailing newlines.
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
