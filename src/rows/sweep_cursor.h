// Visits the entries of an index a few at a time, round and round.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tkv {

class SweepCursor {
 public:
  // Calls f(mix, entry) for the next `count` entries, or for fewer if the index ends before.  After
  // the last entry the next call begins at the first one.
  //   index  has ForEach, as RowIndex does
  template <typename Index, typename F>
  void Next(const Index& index, size_t count, F f) {
    const uint64_t first = std::exchange(next_, 0);
    index.ForEach(first, [&](uint64_t mix, const auto& entry) {
      if (count-- == 0) {
        next_ = mix;
        return false;
      }
      f(mix, entry);
      return true;
    });
  }

 private:
  uint64_t next_ = 0;  // lower bound of the next entry's mix
};

}  // namespace tkv
