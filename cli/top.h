// tkv top: prints the activity of a job, by key and by worker, again and again.

#pragma once

#include "look.h"

namespace tkv::cli {

struct TopOptions : LookOptions {
  double interval_seconds = 1;
  uint64_t count = 0;  // the number of tables; 0: until the job ends
};

int RunTop(const TopOptions& options, Form form);

}  // namespace tkv::cli
