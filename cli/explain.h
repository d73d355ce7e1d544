// The subcommand explain: what a server computes with an update program.

#pragma once

#include <string>
#include <vector>

#include "json.h"

namespace tkv::cli {

struct ExplainOptions {
  std::string file;                 // of a program's text; "-": stdin
  std::string optimizer;            // or the name of a built-in
  std::vector<std::string> params;  // NAME=VALUE
  double round = 1;                 // for which scalars are shown
  double workers = 1;               // that push
};

// The exit status.
//   throws  kInvalidArgument  no file, or neither file nor optimizer; a bad program, naming the line; no
//                             such hyperparameter
//           kNotFound         no such optimizer
int RunExplain(const ExplainOptions& options, Form form);

}  // namespace tkv::cli
