#include "trace/chrome.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <limits>
#include <map>
#include <utility>

#include "base/format.h"

namespace tkv {
namespace {

std::string Quoted(std::string_view text) {
  return boost::json::serialize(boost::json::string(text));
}

std::string Microseconds(int64_t nanoseconds) {
  return Format("{}.{:03d}", nanoseconds / 1000, nanoseconds % 1000);
}

// The lines of a process in the trace.
class Lines {
 public:
  // Returns the line of a span: the first of its kind and rank that is free at the span's begin.
  int Of(const Span& span) {
    std::vector<Line>& lines = lines_[{span.kind, span.rank}];
    for (Line& line : lines) {
      if (line.busy_until > span.begin) continue;
      line.busy_until = span.begin + span.nanoseconds;
      return line.number;
    }
    lines.push_back({++count_, span.begin + span.nanoseconds});
    return count_;
  }
  template <typename F>
  void ForEach(F f) const {
    for (const auto& [of, lines] : lines_) {
      for (size_t i = 0; i < lines.size(); ++i) f(lines[i].number, of.first, of.second, i);
    }
  }

 private:
  struct Line {
    int number;
    int64_t busy_until;
  };
  int count_ = 0;
  std::map<std::pair<Span::Kind, int32_t>, std::vector<Line>> lines_;
};

}  // namespace

std::string ChromeTrace(const std::vector<TracedProcess>& processes,
                        const std::function<std::string(const Span&)>& key_of) {
  int64_t origin = std::numeric_limits<int64_t>::max();
  for (const TracedProcess& process : processes) {
    for (const Span& span : process.spans) origin = std::min(origin, span.begin - process.ahead);
  }
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  bool is_first = true;
  const auto add = [&](const std::string& event) {
    if (!std::exchange(is_first, false)) text += ',';
    text += '\n' + event;
  };
  std::string lost, clocks;
  for (size_t p = 0; p < processes.size(); ++p) {
    const TracedProcess& process = processes[p];
    const size_t pid = p + 1;
    add(Format(R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":{}}}}})", pid,
               Quoted(process.name)));
    add(Format(
        R"({{"ph":"M","name":"process_sort_index","pid":{},"tid":0,"args":{{"sort_index":{}}}}})",
        pid, p));
    std::vector<Span> spans = process.spans;
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span& a, const Span& b) { return a.begin < b.begin; });
    Lines lines;
    for (const Span& span : spans) {
      const int line = lines.Of(span);
      const std::string key = key_of(span);
      const std::string name =
          key.empty() ? Name(span.kind) : Format("{} {}", Name(span.kind), key);
      add(Format(R"({{"ph":"X","name":{},"cat":"{}","ts":{},"dur":{},"pid":{},"tid":{},"args":{{)"
                 R"("key":{},"rank":{},"number":{},"chunk":{},"bytes":{},"state":"{}"}}}})",
                 Quoted(name), Name(span.kind), Microseconds(span.begin - process.ahead - origin),
                 Microseconds(span.nanoseconds), pid, line, Quoted(key), span.rank, span.number,
                 span.chunk, span.bytes, Name(span.state)));
    }
    lines.ForEach([&](int number, Span::Kind kind, int32_t rank, size_t i) {
      const std::string of = rank < 0 ? Name(kind) : Format("{} of worker {}", Name(kind), rank);
      const std::string name = i == 0 ? of : Format("{} ({})", of, i + 1);
      add(Format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", pid,
                 number, Quoted(name)));
    });
    const char* const comma = p == 0 ? "" : ",";
    lost += Format("{}{}:{}", comma, Quoted(process.name), process.lost);
    clocks += Format("{}{}:{}", comma, Quoted(process.name),
                     Microseconds(static_cast<int64_t>(process.clock_error)));
  }
  return text + Format("\n],\"otherData\":{{\"lost_spans\":{{{}}},\"clock_error_us\":{{{}}}}}}}\n",
                       lost, clocks);
}

}  // namespace tkv
