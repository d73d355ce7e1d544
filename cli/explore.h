// The subcommand explore.

#pragma once

#include <string>
#include <vector>

namespace tkv::cli {

struct ExploreOptions {
  std::vector<std::string> scopes;  // empty: all
  bool large = false;
  bool list = false;
  int jobs = 2;  // threads
};

// The exit status: 0 where every guarantee held.
int RunExplore(const ExploreOptions& options);

}  // namespace tkv::cli
