// What the processes of a launched job run.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "tkv/job.h"

namespace tkv::cli {

inline constexpr int kWorkersMax = 4096;  // of a job; and as many servers, and observers

// Processes of a job that run one command.
struct Program {
  Job::Role role = Job::Role::kWorker;  // or kObserver
  int count = 1;
  std::vector<std::string> command;
};

// The programs of a job, in the order of their ranks: `workers` workers run the first command.  Behind
// each ":" is another one, in front of it `-n N` or `--observers N`; a ":" with neither behind it is a
// word of the command.
//   throws  kInvalidArgument  there is no command, a number that is none, too many workers
std::vector<Program> ProgramsOf(std::span<const std::string> words, int workers);

int CountOf(const std::vector<Program>& programs, Job::Role role);

// That of a worker or an observer.
const std::vector<std::string>& CommandOf(const std::vector<Program>& programs, Job::Role role,
                                          int rank);

}  // namespace tkv::cli
