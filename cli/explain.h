// The subcommand explain: shows the computation of an update program on a server.

#pragma once

#include <string>
#include <vector>

#include "json.h"
#include "look.h"

namespace tkv::cli {

struct ExplainOptions : KeyOptions {
  bool has_key = false;             // explains the update of a key of a running job
  std::string file;                 // a program's text; "-": stdin
  std::string optimizer;            // the name of a built-in optimizer
  std::vector<std::string> params;  // NAME=VALUE
  double round = 0;    // the round whose scalars are shown; 0: the first, or the key's next one
  double workers = 0;  // the number of pushing workers; 0: one, or the job's workers
};

// Explains the program.  Returns the exit status.
//   throws  kInvalidArgument  an unreadable file; neither file, optimizer nor key; a bad program
//           (names the line); an unknown hyperparameter
//           kNotFound         an unknown optimizer or key; also as KVStore::Connect and UpdateOf
int RunExplain(const ExplainOptions& options, Form form);

}  // namespace tkv::cli
