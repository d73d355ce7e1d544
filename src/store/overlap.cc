#include "store/overlap.h"

#include <algorithm>
#include <utility>

namespace tkv {

void OverlapCheck::Add(size_t group, const NDArray& array, bool is_written) {
  if (array.size() == 0) return;
  // A strided array counts with the whole block that it lies in: more than it touches, never less.
  const bool dense = array.contiguous();
  Add(group, dense ? array.data() : array.storage()->data(),
      dense ? array.bytes() : array.storage()->bytes(), is_written);
}

bool OverlapCheck::Range::IsSameUseAs(const Range& other) const {
  return begin == other.begin && end == other.end && group == other.group;
}

// A range that begins later meets an earlier one of another use if it meets the one of them that
// reaches furthest.
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
  Range second_{};  // of the uses that are not that of `first_`
};

bool OverlapCheck::Conflicts() {
  const auto is_before = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  // Arrays that were made one after the other often lie so: the values first, then the outputs.
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
