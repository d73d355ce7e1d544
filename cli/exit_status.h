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
    {"0", "done, without findings"},
    {"1",
     "done, with a bad result: a problem for a job (doctor), a job that is not healthy (status "
     "--probe), or a broken guarantee (sim, explore)"},
    {"2", "not done: the command line is wrong, or an error occurred; the message names it"},
    {"128+N", "ended by signal N"},
    {"any", "of launch: the status of the first process of the job that failed"},
}};

}  // namespace tkv::cli
