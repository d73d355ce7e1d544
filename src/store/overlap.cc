#include "store/overlap.h"

#include <algorithm>
#include <cstdint>

namespace tkv {

void OverlapCheck::Add(size_t group, const NDArray& array, bool is_written) {
  if (array.size() == 0) return;
  // A strided array counts with the whole block that it lies in: more than it touches, never less.
  const bool dense = array.contiguous();
  const char* begin = static_cast<const char*>(dense ? array.data() : array.storage()->data());
  const size_t bytes = dense ? array.bytes() : array.storage()->bytes();
  ranges_.push_back({begin, begin + bytes, group, is_written});
}

bool OverlapCheck::Conflicts() {
  constexpr size_t kSeveral = SIZE_MAX;  // equal ranges of more than one group
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  const auto same_bytes = [](const Range& a, const Range& b) {
    return a.begin == b.begin && a.end == b.end;
  };
  const auto conflict = [&](const Range& earlier, const Range& later) {
    return later.begin < earlier.end &&
           !(same_bytes(earlier, later) && earlier.group == later.group);
  };
  // Walking by begin, the range that reaches furthest meets the next one if any earlier range does.
  const auto extend = [&](Range* furthest, const Range& range) {
    if (range.end > furthest->end) {
      *furthest = range;
    } else if (same_bytes(*furthest, range) && furthest->group != range.group) {
      furthest->group = kSeveral;
    }
  };
  Range furthest{};
  Range furthest_written{};
  for (const Range& range : ranges_) {
    if (conflict(furthest_written, range)) return true;
    if (range.is_written && conflict(furthest, range)) return true;
    extend(&furthest, range);
    if (range.is_written) extend(&furthest_written, range);
  }
  return false;
}

}  // namespace tkv
