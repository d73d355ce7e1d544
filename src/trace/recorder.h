// The newest spans of a process, while recording is on.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/span.h"

namespace tkv {

// A ring buffer of spans.  Not thread-safe.  Uses no memory before the first span, and frees it in
// Clear.
class Recorder {
 public:
  static constexpr size_t kSpansMax = size_t{1} << 18;  // spans kept; older ones are overwritten

  void Record(bool on) { is_on_ = on; }
  bool is_on() const { return is_on_; }
  // Adds a span; never throws.  If there is no memory, the span and all before it count as
  // overwritten.
  void Add(const Span& span) noexcept;
  // Returns the number of the next span.
  uint64_t next() const { return next_; }
  // Returns the number of the oldest span that is kept.
  uint64_t first() const { return next_ - kept_; }
  // Returns at most `most` spans from number `from` on, or from the oldest.
  std::vector<Span> From(uint64_t from, size_t most) const;
  void Clear();

 private:
  bool is_on_ = false;
  uint64_t next_ = 0;
  size_t kept_ = 0;
  std::vector<Span> ring_;  // span n is in ring_[n % kSpansMax]
};

}  // namespace tkv
