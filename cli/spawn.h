// A process that a subcommand starts, and the pipes to it.

#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

namespace tkv::cli {

class Watchdog;

struct Spawned {
  pid_t pid = -1;   // the leader of a process group of its own, which a signal reaches as a whole
  int input = -1;   // the end of a pipe that it reads; -1 where it reads nothing
  int output = -1;  // the end of a pipe that its stdout and stderr write to
};

struct SpawnOptions {
  std::vector<std::string> words;      // of the command
  std::vector<std::string> variables;  // its environment, where `inherits` does not say it all
  bool inherits = true;                // this process's environment
  bool has_input = false;
  sigset_t signals{};                  // that it blocks
  const Watchdog* watchdog = nullptr;  // knows the process before it runs anything
};

// Whenever this process dies, the watchdog sees its end only after all that it has spawned are
// known to it.
//   throws  kInvalidArgument  no such command; kUnavailable  what the system says
Spawned Spawn(SpawnOptions options);

}  // namespace tkv::cli
