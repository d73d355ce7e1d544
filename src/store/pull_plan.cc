#include "store/pull_plan.h"

#include "base/check.h"
#include "base/small_vector.h"
#include "store/gpu_calls.h"
#include "store/home.h"
#include "store/local_rows.h"
#include "store/overlap.h"
#include "update/parallel.h"
#include "update/tile_driver.h"

namespace tkv {
namespace {

// A call that moves fewer bytes runs its jobs in order, so that arrays which share memory need no
// check.
constexpr size_t kSmallCallBytes = size_t{256} << 10;

// Returns true if an output shares memory with another one, unless both are the same bytes of one
// key.
bool Overlap(std::span<const PullItem> items) {
  if (items.size() == 1 && items[0].outs.size() == 1) return false;
  OverlapCheck check;
  for (size_t i = 0; i < items.size(); ++i) {
    for (const NDArray* out : items[i].outs) check.Writes(i, *out);
  }
  return check.Conflicts();
}

}  // namespace

PullPlan::PullPlan(const Claim& claim, std::span<const PullItem> items)
    : claim_(claim), items_(items), outputs_(Gather(items, claim)) {}

bool PullPlan::CanJoin(std::span<const PushItem> pushes, const Sources& sources) const {
  const bool is_small = claim_.pushed_bytes + claim_.pulled_bytes < kSmallCallBytes;
  if ((is_small && !claim_.has_gpus) || claim_.updater->function || claim_.has_rows ||
      claim_.entries.size() != pushes.size() || claim_.push_groups != claim_.pull_groups) {
    return false;
  }
  return !HasConflict(pushes, sources);
}

// Returns true if arrays of the call share memory across keys.  Item i is of key i.
bool PullPlan::HasConflict(std::span<const PushItem> pushes, const Sources& sources) const {
  OverlapCheck check;
  check.Reserve(sources.pointers.size() + outputs_.outputs.size());
  if (!sources.packed.empty() || !outputs_.stand_ins.empty()) {
    for (size_t i = 0; i < pushes.size(); ++i) {
      for (const NDArray* value : pushes[i].values) check.Reads(i, *value);
      for (const NDArray* out : items_[i].outs) check.Writes(i, *out);
    }
    return check.Conflicts();
  }
  for (size_t i = 0; i < pushes.size(); ++i) {
    const size_t bytes = claim_.entries[i]->bytes;
    for (const void* source : sources.of(i)) check.Reads(i, source, bytes);
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    const Entry& entry = *claim_.entries[i];
    const size_t count = entry.bytes / ItemSize(entry.value.dtype());
    for (const TileJob::Output& output : outputs_.of(i)) {
      check.Writes(i, output.data, count * ItemSize(output.dtype));
    }
  }
  return check.Conflicts();
}

// Returns true if a single thread pulls all keys.
bool PullPlan::IsSmall() const {
  return items_.size() > 1 && claim_.pulled_bytes < kSmallCallBytes;
}

// Returns true if the jobs of RunTogether write one output after the other.
bool PullPlan::IsOneByOne() const {
  return IsSmall() && outputs_.stand_ins.empty() && outputs_.outputs.size() == items_.size();
}

void PullPlan::Choose() {
  if (claim_.has_gpus && !claim_.has_rows && !Overlap(items_)) {
    way_ = Way::kByGpus;
  } else if (claim_.has_rows || claim_.has_gpus) {
    way_ = Way::kInOrder;
  } else {
    way_ = IsOneByOne() || !Overlap(items_) ? Way::kTogether : Way::kInOrder;
  }
}

void PullPlan::Prepare() {
  if (way_ == Way::kByGpus) gpus_ = PullBatches(claim_, items_, outputs_);
}

void PullPlan::Run() {
  switch (way_) {
    case Way::kUnknown:
      break;
    case Way::kByPush:
      return outputs_.Scatter(claim_.verb);
    case Way::kByGpus:
      if (!gpus_) Prepare();
      return RunPulls(claim_, items_, outputs_, &*gpus_);
    case Way::kTogether:
      return RunTogether();
    case Way::kInOrder:
      return RunInOrder();
  }
  TKV_CHECK(way_ != Way::kUnknown);
}

void PullPlan::RunTogether() const {
  SmallVector<TileJob, 1> jobs(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    jobs[i] = PullJob(*claim_.entries[claim_.pull_groups[i]], outputs_.of(i));
  }
  RunJobs({jobs.data(), jobs.size()}, IsSmall() ? 1 : ThreadsFor(claim_.options.threads));
  outputs_.Scatter(claim_.verb);
}

void PullPlan::RunInOrder() const {
  const int threads = ThreadsFor(claim_.options.threads);
  for (size_t i = 0; i < items_.size(); ++i) {
    const Entry& entry = *claim_.entries[claim_.pull_groups[i]];
    const auto all = outputs_.of(i);
    for (size_t k = 0; k < all.size(); ++k) {
      if (entry.by_rows()) {
        ReadRows(entry.rows->table, nullptr, entry.rows->row_count, all[k].data, all[k].dtype,
                 threads);
      } else {
        RunAtHome(claim_.verb, entry, PullJob(entry, all.subspan(k, 1)), threads,
                  [&](GpuBatch* batch) { EnterPull(entry, outputs_, i, batch); });
      }
      outputs_.Scatter(claim_.verb, outputs_.begin_of(i) + k);
    }
  }
}

}  // namespace tkv
