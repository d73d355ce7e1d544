// The arrays of a call as runs of memory that jobs can work on.

#pragma once

#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "base/small_vector.h"
#include "tkv/kvstore.h"
#include "tkv/ndarray.h"
#include "update/tile_driver.h"

namespace tkv {

// The values of a call, packed and grouped by key.
struct Sources {
  std::vector<NDArray> packed;           // copies of strided values and of those on devices
  SmallVector<const void*, 8> pointers;  // all groups one behind the other
  SmallVector<size_t> ends;              // of group g in `pointers`
  std::vector<NDArray> bases;            // of groups whose values are summed already, in f32

  std::span<const void* const> of(size_t group) const {
    const size_t begin = group == 0 ? 0 : ends[group - 1];
    return {pointers.data() + begin, ends[group] - begin};
  }
  // Makes them what a job sums.
  void GiveTo(size_t group, TileJob* job) const {
    if (!bases.empty() && bases[group]) {
      job->base = bases[group].data();
    } else {
      job->sources = of(group);
    }
  }
};

// The outputs of a call, one list per item; strided ones and those on devices are written through a
// packed stand-in.
struct Outputs {
  struct StandIn {
    NDArray packed;
    const NDArray* out;
    size_t output;  // number in `outputs`
  };
  std::vector<StandIn> stand_ins;  // in the order of their outputs
  SmallVector<TileJob::Output, 8> outputs;
  SmallVector<size_t> ends;

  size_t begin_of(size_t item) const { return item == 0 ? 0 : ends[item - 1]; }
  std::span<const TileJob::Output> of(size_t item) const {
    return {outputs.data() + begin_of(item), ends[item] - begin_of(item)};
  }
  void Scatter() const {
    for (const StandIn& one : stand_ins) one.out->CopyFrom(one.packed);
  }
  void Scatter(size_t output) const {
    for (const StandIn& one : stand_ins) {
      if (one.output == output) one.out->CopyFrom(one.packed);
    }
  }
};

// `groups` says which of `group_count` keys each item has.
//   blocks  until the values can be read, at most the patience
Sources Gather(std::span<const PushItem> items, std::span<const size_t> groups, size_t group_count,
               std::chrono::nanoseconds patience);
//   blocks  until the outputs can be written, at most the patience
Outputs Gather(std::span<const PullItem> items, std::chrono::nanoseconds patience);

}  // namespace tkv
