// The arrays of a call as runs of memory that jobs can work on.

#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/small_vector.h"
#include "store/checks.h"
#include "store/claim.h"
#include "tkv/kvstore.h"
#include "tkv/ndarray.h"
#include "update/tile_driver.h"

namespace tkv {

// Memory that jobs on a GPU use, and of which item or group.
struct Lent {
  size_t of;
  std::shared_ptr<Storage> storage;
};

// The values of a call, packed and grouped by key.
struct Sources {
  std::vector<NDArray> packed;           // copies of strided values and of those on devices
  std::vector<Lent> lent;                // of groups whose values are at home on GPUs
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

// The outputs of a call, one list per item; strided ones, and those that lie where jobs of their key
// do not reach them, are written through a packed stand-in.
struct Outputs {
  struct StandIn {
    NDArray packed;  // null: the output, which has no data then, is copied from the value itself
    const Entry* entry;  // its key
    const NDArray* out;
    size_t output;  // number in `outputs`

    void Scatter(std::string_view verb) const {
      NamingKey(verb, entry->key.view(), [&] { out->CopyFrom(packed ? packed : entry->value); });
    }
  };
  std::vector<Lent> lent;          // of items whose values are at home on GPUs
  std::vector<StandIn> stand_ins;  // in the order of their outputs
  SmallVector<TileJob::Output, 8> outputs;
  SmallVector<size_t> ends;

  size_t begin_of(size_t item) const { return item == 0 ? 0 : ends[item - 1]; }
  std::span<const TileJob::Output> of(size_t item) const {
    return {outputs.data() + begin_of(item), ends[item] - begin_of(item)};
  }
  //   throws  what copies to and from GPUs throw
  void Scatter(std::string_view verb) const {
    for (const StandIn& one : stand_ins) one.Scatter(verb);
  }
  void Scatter(std::string_view verb, size_t output) const {
    for (const StandIn& one : stand_ins) {
      if (one.output == output) one.Scatter(verb);
    }
  }
};

//   items   of the pushes of the claim, whose keys have been moved to where they are summed
//   before  pushes of the claim that are not among the items
//   blocks  until the values can be read, at most the patience
//   throws  kDeadlineExceeded, and what copies to and from GPUs throw
Sources Gather(std::string_view verb, std::span<const PushItem> items, const Claim& claim,
               std::chrono::nanoseconds patience, size_t before = 0);
//   items   of the pulls of the claim
//   blocks  until the outputs can be written, at most the patience
Outputs Gather(std::string_view verb, std::span<const PullItem> items, const Claim& claim,
               std::chrono::nanoseconds patience);

}  // namespace tkv
