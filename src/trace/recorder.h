// The newest spans of a process, while somebody wants them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/span.h"

namespace tkv {

// Not thread-safe.  Takes no memory before the first span, and gives it back with Clear.
class Recorder {
 public:
  static constexpr size_t kSpansMax = size_t{1} << 18;  // kept; older ones go

  void Record(bool on) { is_on_ = on; }
  bool is_on() const { return is_on_; }
  // Never throws: where there is no memory the span is lost, and counts as one that has gone.
  void Add(const Span& span) noexcept;
  // The number of the span that will come next.
  uint64_t next() const { return next_; }
  // The number of the oldest one that is kept.
  uint64_t first() const { return next_ - kept_; }
  // From number `from` on, or from the oldest, at most `most` of them.
  std::vector<Span> From(uint64_t from, size_t most) const;
  void Clear();

 private:
  bool is_on_ = false;
  uint64_t next_ = 0;
  size_t kept_ = 0;
  std::vector<Span> ring_;  // span n is at n % kSpansMax
};

}  // namespace tkv
