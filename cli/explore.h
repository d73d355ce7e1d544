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
  unsigned long states_max = 0;  // for one job; 0: no limit
};

// Explores the scopes.  Returns the exit status: 0 if every guarantee held.
int RunExplore(const ExploreOptions& options, Form form);

}  // namespace tkv::cli
