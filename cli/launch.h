// The subcommand launch.

#pragma once

#include <string>
#include <vector>

#include "json.h"

namespace tkv::cli {

struct LaunchOptions {
  int workers = 1;  // of the first program
  int servers = 1;
  int restarts = 0;     // of each worker that fails; of the job, where it goes on from a snapshot
  std::string restore;  // a folder of snapshots, or one of them; empty: none
  // The folder that the job saves to, where it goes on from a snapshot; empty: it saves nothing.
  std::string snapshots;
  bool tcp = false;     // loopback TCP with a token instead of Unix sockets
  std::string hosts;    // a file of hosts that share them; empty: this machine
  std::string address;  // of this machine, as they reach it; empty: that of the route there
  // NAME: other hosts are told it beside TKV_*; NAME=VALUE: all processes have it.
  std::vector<std::string> variables;
  std::string log_folder;            // one file per process; empty: none
  int grace_seconds = 30;            // for the others, when one has failed
  std::vector<std::string> command;  // of one program or several, as ProgramsOf reads them
};

// Starts a head in this process, servers and workers as its children, and waits for them.  The exit
// status of the first that failed, 0 where none did.
//   throws  kInvalidArgument  no command, or one that cannot be run; hosts that cannot be read; a
//                     variable that is not set or that the launcher itself says
int Launch(const LaunchOptions& options, Form form);

}  // namespace tkv::cli
