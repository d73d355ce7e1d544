// Writing a trace to a file.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tkv/kvstore.h"
#include "trace/chrome.h"

namespace tkv {

// Writes a trace file.  Writes to a temporary file first and renames it, so that the file is
// complete or unchanged.
//   throws  as checkpoint::File
KVStore::TraceInfo WriteTraceFile(const std::string& file,
                                  const std::vector<TracedProcess>& processes,
                                  const std::function<std::string(const Span&)>& key_of);

}  // namespace tkv
