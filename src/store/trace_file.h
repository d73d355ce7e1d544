// A trace as a file.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tkv/kvstore.h"
#include "trace/chrome.h"

namespace tkv {

// Writes beside the file, which is there whole or as it was.
//   throws  as checkpoint::File
KVStore::TraceInfo WriteTraceFile(const std::string& file,
                                  const std::vector<TracedProcess>& processes,
                                  const std::function<std::string(const Span&)>& key_of);

}  // namespace tkv
