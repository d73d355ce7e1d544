// The arrays of a call as contiguous memory for jobs.

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

// Memory that jobs on a GPU use, and the index of its item or group.
struct Lent {
  size_t of;
  std::shared_ptr<Storage> storage;
};

// The values of a call, packed and grouped by key.
struct Sources {
  std::vector<NDArray> packed;           // copies of strided values and of values on devices
  std::vector<Lent> lent;                // memory of groups whose home is a GPU
  SmallVector<const void*, 8> pointers;  // all groups one after the other
  SmallVector<size_t> ends;              // end of group g in `pointers`
  std::vector<NDArray> bases;  // sums of groups that are summed already, in the compute type

  // Takes the values of pushes.
  //   items   pushes of the claim; their keys have been moved to where they are summed
  //   before  number of pushes of the claim before these items
  //   blocks  until the values can be read, at most the timeout (`patience`)
  //   throws  kDeadlineExceeded, and the errors of copies to and from GPUs
  void Take(std::span<const PushItem> items, const Claim& claim, size_t before);
  std::span<const void* const> of(size_t group) const {
    const size_t begin = group == 0 ? 0 : ends[group - 1];
    return {pointers.data() + begin, ends[group] - begin};
  }
  // Sets the group's values as the input of a job.
  void GiveTo(size_t group, TileJob* job) const {
    if (!bases.empty() && bases[group]) {
      job->base = bases[group].data();
    } else {
      job->sources = of(group);
    }
  }
};

// The outputs of a call, one list for each item.  Strided outputs, and outputs that jobs of their
// key cannot reach, are written through a packed stand-in.
struct Outputs {
  struct StandIn {
    // Null: the value is copied to the output directly, and the job has no memory for it.
    NDArray packed;
    const Entry* entry;  // the key
    const NDArray* out;
    size_t output;  // index in `outputs`

    void Scatter(std::string_view verb) const {
      NamingKey(verb, entry->key.view(), [&] { out->CopyFrom(packed ? packed : entry->value); });
    }
  };
  std::vector<Lent> lent;          // memory of items whose values have their home on a GPU
  std::vector<StandIn> stand_ins;  // in the order of the outputs
  SmallVector<TileJob::Output, 8> outputs;
  SmallVector<size_t> ends;

  size_t begin_of(size_t item) const { return item == 0 ? 0 : ends[item - 1]; }
  std::span<const TileJob::Output> of(size_t item) const {
    return {outputs.data() + begin_of(item), ends[item] - begin_of(item)};
  }
  //   throws  the errors of copies to and from GPUs
  void Scatter(std::string_view verb) const {
    for (const StandIn& one : stand_ins) one.Scatter(verb);
  }
  void Scatter(std::string_view verb, size_t output) const {
    for (const StandIn& one : stand_ins) {
      if (one.output == output) one.Scatter(verb);
    }
  }
};

// Returns the outputs of pulls.
//   items   pulls of the claim
//   blocks  until the outputs can be written, at most the timeout (`patience`)
Outputs Gather(std::span<const PullItem> items, const Claim& claim);

}  // namespace tkv
