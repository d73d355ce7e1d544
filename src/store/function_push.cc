#include "store/function_push.h"

#include <mutex>
#include <utility>

#include "store/checks.h"
#include "store/gpu_calls.h"
#include "update/parallel.h"

namespace tkv {

FunctionPush::FunctionPush(const PushInput& input)
    : input_(input), threads_(ThreadsFor(input.claim.options.threads)) {}

FunctionPush::~FunctionPush() {
  const UpdateEnd& end = input_.claim.updater->end;
  if (end) end(returned_, has_committed_);
}

void FunctionPush::Run() {
  for (size_t g = 0; g < input_.count; ++g) CallFor(*input_.claim.entries[g], SumOf(g));
}

// Returns the sum of the values of a key.
NDArray FunctionPush::SumOf(size_t group) const {
  const Entry& entry = *input_.claim.entries[group];
  const DType dtype = entry.value.dtype();
  const bool is_wide = input_.claim.updater->sums == SumType::kWide;
  const DType type = is_wide ? ComputeType(dtype) : dtype;
  const NDArray sum = NamingKey(input_.claim.verb, entry.key.view(), [&] {
    return NDArray::Empty(entry.value.shape(), type, entry.value.context());
  });
  TileJob job;
  job.dtype = dtype;
  job.is_wide = type != dtype;
  job.count = static_cast<size_t>(sum.size());
  input_.sources.GiveTo(group, &job);
  job.value = sum.data();
  RunAtHome(input_.claim.verb, entry, job, threads_, [&](GpuBatch* batch) {
    for (const Lent& one : input_.sources.lent) {
      if (one.of == group) batch->Reads(one.storage);
    }
    batch->Writes(sum);
  });
  return sum;
}

// Calls the function for a key, and keeps the updated copy for Commit.
void FunctionPush::CallFor(const Entry& entry, const NDArray& sum) {
  const auto copy = [&](const NDArray& array) {
    return NamingKey(input_.claim.verb, entry.key.view(), [&] { return array.Copy(); });
  };
  NDArray stored = copy(entry.value);
  try {
    input_.claim.updater->function(entry.key.view(), sum, stored);
  } catch (const std::bad_alloc&) {
    throw Fail(Code::kResourceExhausted, "{} {}: no memory for the updater", input_.claim.verb,
               entry.key.view().ToString());
  }
  ++returned_;
  // If user code kept its handle, it must not be able to change the store later.
  const bool is_kept = stored.storage().use_count() > 1;
  updated_.push_back(is_kept ? copy(stored) : std::move(stored));
}

void FunctionPush::Commit() {
  {
    // Other calls read the shape of a value before they wait for its key.  The old values are freed
    // with this push, after the lock is released.
    std::lock_guard lock(input_.claim.shared->mutex);
    for (size_t g = 0; g < input_.count; ++g) {
      std::swap(input_.claim.entries[g]->value, updated_[g]);
    }
  }
  has_committed_ = true;
}

}  // namespace tkv
