// The programs that the processes of a launched job run.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "tkv/job.h"

namespace tkv::cli {

// The most workers of a job; the same limit holds for servers and for observers.
inline constexpr int kWorkersMax = 4096;

// Processes of a job that run one command.
struct JobProgram {
  Job::Role role = Job::Role::kWorker;  // or kObserver
  int count = 1;
  std::vector<std::string> command;
};

// Throws if this machine cannot run a command's first word: kInvalidArgument, with advice.
void CheckProgram(const std::string& word);

// Parses the programs of a job, in the order of their ranks.  The first command runs in `workers`
// workers.  Each ":" followed by `-n N` or `--observers N` begins another program.  Another ":" is
// a word of the command.
//   throws  kInvalidArgument  no command, an invalid number, too many workers
std::vector<JobProgram> ProgramsOf(std::span<const std::string> words, int workers);

int CountOf(const std::vector<JobProgram>& programs, Job::Role role);

// Returns the command of a worker or an observer.
const std::vector<std::string>& CommandOf(const std::vector<JobProgram>& programs, Job::Role role,
                                          int rank);

}  // namespace tkv::cli
