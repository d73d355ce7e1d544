#include "store/overlap.h"

#include <algorithm>
#include <utility>

namespace tkv {

void OverlapCheck::Add(size_t group, const NDArray& array, bool is_written) {
  if (array.size() == 0) return;
  // A strided array counts as the whole block that contains it: never less memory than it touches.
  const bool dense = array.contiguous();
  Add(group, dense ? array.data() : array.storage()->data(),
      dense ? array.bytes() : array.storage()->bytes(), is_written);
}

bool OverlapCheck::Range::IsSameUseAs(const Range& other) const {
  return begin == other.begin && end == other.end && group == other.group;
}

// The furthest ends among earlier ranges, for two different uses.  A later range overlaps an
// earlier range of another use exactly if it overlaps the one that reaches furthest.
class OverlapCheck::Furthest {
 public:
  bool Meets(const Range& later) const {
    return later.begin < (first_.IsSameUseAs(later) ? second_ : first_).end;
  }
  void Add(const Range& range) {
    if (first_.IsSameUseAs(range)) return;
    if (range.end > first_.end) {
      second_ = std::exchange(first_, range);
    } else if (range.end > second_.end) {
      second_ = range;
    }
  }

 private:
  Range first_{};
  Range second_{};  // the furthest range of any use other than that of `first_`
};

bool OverlapCheck::Conflicts() {
  const auto is_before = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  // Arrays that were allocated one after the other are often sorted already, first the values, then
  // the outputs.
  const auto second = std::is_sorted_until(ranges_.begin(), ranges_.end(), is_before);
  if (std::is_sorted(second, ranges_.end(), is_before)) {
    std::inplace_merge(ranges_.begin(), second, ranges_.end(), is_before);
  } else {
    std::sort(ranges_.begin(), ranges_.end(), is_before);
  }
  Furthest all;
  Furthest written;
  for (const Range& range : ranges_) {
    if (written.Meets(range) || (range.is_written && all.Meets(range))) return true;
    all.Add(range);
    if (range.is_written) written.Add(range);
  }
  return false;
}

}  // namespace tkv
