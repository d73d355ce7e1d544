// The subcommand explore.

#pragma once

#include <string>
#include <vector>

#include "json.h"

namespace tkv::cli {

struct ExploreOptions {
  std::vector<std::string> scopes;  // empty: all
  bool large = false;
  bool list = false;
  int jobs = 2;                  // threads
  unsigned long states_max = 0;  // of one job; 0: no limit
};

// The exit status: 0 where every guarantee held.
int RunExplore(const ExploreOptions& options, Form form);

}  // namespace tkv::cli
