// Starts a process of a subcommand, with pipes to it.

#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

namespace tkv::cli {

class Watchdog;

struct Spawned {
  pid_t pid = -1;   // the leader of its own process group, so that a signal reaches all of it
  int input = -1;   // our end of its stdin's pipe; -1: it has none
  int output = -1;  // our end of the pipe of its stdout
  int error = -1;   // our end of the pipe of its stderr; -1: `output` has both
};

// The stdin of a process: /dev/null, a pipe from this process, or this process's own.
enum class Stdin : uint8_t { kNothing, kPipe, kOwn };

struct SpawnOptions {
  std::vector<std::string> words;      // of the command
  std::vector<std::string> variables;  // its environment if `inherits` is false
  bool inherits = true;                // it has this process's environment
  Stdin input = Stdin::kNothing;
  bool separates_error = false;        // stderr has a pipe of its own
  sigset_t signals{};                  // blocked in the process
  const Watchdog* watchdog = nullptr;  // told of the process before it runs anything
};

// Starts the command.  The process registers with the watchdog before it runs the command, so that
// no process escapes the watchdog when this process dies.
//   throws  kInvalidArgument  no such command; kUnavailable  the system's error
Spawned Spawn(SpawnOptions options);

}  // namespace tkv::cli
