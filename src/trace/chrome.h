// Spans of several processes as one document of Chrome's trace event format, which chrome://tracing
// and ui.perfetto.dev show.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trace/span.h"

namespace tkv {

struct TracedProcess {
  std::string name;          // "worker 0", "server 1"
  int64_t ahead = 0;         // ns that its clock is ahead of the reader's
  uint64_t clock_error = 0;  // ns that `ahead` may be wrong by
  uint64_t lost = 0;         // spans that were not kept
  std::vector<Span> spans;
};

// Spans of one process, kind and rank that overlap in time get lines of their own.
//   key_of  the name of the key of a span
std::string ChromeTrace(const std::vector<TracedProcess>& processes,
                        const std::function<std::string(const Span&)>& key_of);

}  // namespace tkv
