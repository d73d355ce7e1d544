// The subcommand explain: what a server computes with an update program.

#pragma once

#include <string>
#include <vector>

#include "json.h"
#include "look.h"

namespace tkv::cli {

struct ExplainOptions : KeyOptions {  // or what updates a key of a running job
  std::string file;                   // of a program's text; "-": stdin
  std::string optimizer;              // or the name of a built-in
  std::vector<std::string> params;    // NAME=VALUE
  double round = 0;    // for which scalars are shown; 0: the first, or the next one of the key
  double workers = 0;  // that push; 0: one, or those of the job
};

// The exit status.
//   throws  kInvalidArgument  no file, or neither file, optimizer nor key; a bad program, naming the line;
//                             no such hyperparameter
//           kNotFound         no such optimizer or key; also as KVStore::Connect and UpdateOf
int RunExplain(const ExplainOptions& options, Form form);

}  // namespace tkv::cli
