// The exit statuses of tkv, in the words of its help, its manual pages and docs/cli.md.

#pragma once

#include <array>

namespace tkv::cli {

inline constexpr int kDone = 0;
inline constexpr int kBadAnswer = 1;
inline constexpr int kNotDone = 2;

struct ExitStatus {
  const char* status;
  const char* meaning;
};

inline constexpr std::array<ExitStatus, 5> kExitStatuses = {{
    {"0", "done, and what was looked at is as it should be"},
    {"1",
     "done, and the answer is bad: something stands in the way of a job (doctor), a job is not "
     "well "
     "(status --probe), or a guarantee was broken (sim, explore)"},
    {"2", "not done: a word of the command line is wrong, or an error, which is named"},
    {"128+N", "ended by signal N"},
    {"any", "of launch: the status of the first process of the job that failed"},
}};

}  // namespace tkv::cli
