// The subcommand launch.

#pragma once

#include <string>
#include <vector>

#include "json.h"

namespace tkv::cli {

struct LaunchOptions {
  int workers = 1;  // of the first program
  int servers = 1;
  int restarts = 0;     // of each worker that fails; of the whole job if it resumes from a snapshot
  std::string restore;  // one snapshot or a folder of them; empty: none
  // The folder for the job's snapshots if it resumes from one; empty: no snapshots.
  std::string snapshots;
  bool tcp = false;   // loopback TCP with a token instead of Unix sockets
  std::string hosts;  // a file with the hosts of the job; empty: this machine
  // This machine's address, as the others reach it; empty: the address of the route there.
  std::string address;
  // NAME: passed to other hosts in addition to TKV_*.  NAME=VALUE: set in all processes.
  std::vector<std::string> variables;
  std::string log_folder;  // one file per process; empty: none
  std::string name;        // the beginning of the job's id; empty: an id of random digits alone
  // The rank of the worker that has this process's stdin, or "none"; empty: rank 0, unless stdin is
  // no terminal and that worker is on another host.
  std::string stdin_rank;
  int grace_seconds = 30;            // of the other processes, after one has failed
  std::vector<std::string> command;  // of one or several programs, as ProgramsOf reads them
};

// Starts a head in this process and servers and workers as its children, and waits for them.
// Returns the exit status of the first process that failed, or 0.
//   throws  kInvalidArgument  no command, or one that cannot be run; an unreadable list of hosts; a
//           variable that is not set or that the launcher itself sets
int Launch(const LaunchOptions& options, Form form);

}  // namespace tkv::cli
