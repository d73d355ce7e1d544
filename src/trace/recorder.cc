#include "trace/recorder.h"

#include <algorithm>
#include <new>

namespace tkv {

void Recorder::Add(const Span& span) noexcept {
  const size_t at = next_ % kSpansMax;
  try {
    if (at >= ring_.size()) ring_.resize(std::min(std::max(2 * at, size_t{1024}), kSpansMax));
  } catch (const std::bad_alloc&) {
    ++next_;
    kept_ = 0;
    return;
  }
  ring_[at] = span;
  ++next_;
  kept_ = std::min(kept_ + 1, kSpansMax);
}

std::vector<Span> Recorder::From(uint64_t from, size_t most) const {
  const uint64_t begin = std::clamp(from, first(), next_);
  const uint64_t end = begin + std::min<uint64_t>(most, next_ - begin);
  std::vector<Span> spans;
  spans.reserve(end - begin);
  for (uint64_t n = begin; n < end; ++n) spans.push_back(ring_[n % kSpansMax]);
  return spans;
}

void Recorder::Clear() {
  kept_ = 0;
  ring_ = {};
}

}  // namespace tkv
