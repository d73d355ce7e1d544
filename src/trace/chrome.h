// Spans of several processes as a document in Chrome's trace event format, which chrome://tracing
// and ui.perfetto.dev show.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trace/span.h"

namespace tkv {

// The spans of one process and the offset of its clock.
struct TracedProcess {
  std::string name;          // "worker 0", "server 1"
  int64_t ahead = 0;         // nanoseconds by which its clock is ahead of the reader's
  uint64_t clock_error = 0;  // largest error of `ahead` in nanoseconds
  uint64_t lost = 0;         // number of spans that were not kept
  std::vector<Span> spans;
};

// Returns the document.  Spans of one process, kind and rank that overlap in time get separate
// lines.
//   key_of  returns the name of a span's key
std::string ChromeTrace(const std::vector<TracedProcess>& processes,
                        const std::function<std::string(const Span&)>& key_of);

}  // namespace tkv
