// tkv top: what a job does, by key and by worker, again and again.

#pragma once

#include "look.h"

namespace tkv::cli {

struct TopOptions : LookOptions {
  double interval_seconds = 1;
  uint64_t count = 0;  // tables; 0: until the job ends
};

int RunTop(const TopOptions& options, Form form);

}  // namespace tkv::cli
