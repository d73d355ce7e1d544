#include "dist/transfer_builder.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <utility>

#include "base/small_vector.h"
#include "dist/gpu_landings.h"
#include "dist/gpu_sums.h"
#include "store/checks.h"
#include "store/overlap.h"
#include "tensor/device_copy.h"
#include "update/parallel.h"

namespace tkv {
namespace {

// The position of each key of a call in its list.
using Positions = boost::unordered_flat_map<const void*, size_t>;

void CheckRowTotal(std::string_view verb, const KeyView& key, size_t rows) {
  if (rows < UINT32_MAX) return;
  throw Fail(Code::kInvalidArgument, "{} {}: {} rows in one call, at most 2^32 - 2 are possible",
             verb, key.ToString(), rows);
}

bool IsOnGpu(const NDArray* array) { return IsOfDevice(*array); }

// Returns the shape of a whole value of a key.  For a table, the number of rows is the first
// dimension.
//   throws  kInvalidArgument  the table has too many rows for one array
Shape WholeShape(std::string_view verb, const KeyRecord& record) {
  const KVStore::KeyInfo& info = record.info;
  if (!info.by_rows) return info.shape;
  return WholeTableShape(verb, record.key.view(), info.shape, info.row_count, record.value_bytes);
}

}  // namespace

// ---- pushes -------------------------------------------------------------------------------------

std::vector<PushSource> TransferBuilder::Sources(std::string_view verb,
                                                 std::span<const PushItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<PushSource> sources;
  std::vector<SmallVector<const NDArray*>> values;
  sources.reserve(items.size());
  values.reserve(items.size());
  Positions positions;
  positions.reserve(items.size());
  {
    const auto lock = core_.Lock(verb);
    for (const PushItem& item : items) {
      const RecordPtr record = core_.keys.Get(verb, item.key);
      CheckValues(verb, item, WholeShape(verb, *record), record->info.dtype);
      if (record->info.by_rows) CheckOfHost(verb, item.key, item.values);
      const auto [position, is_new] = positions.emplace(record.get(), sources.size());
      const size_t at = position->second;
      if (is_new) {
        updater_.Check(verb, *record);
        sources.push_back({.record = record, .priority = item.priority, .step = item.step});
        values.emplace_back();
        compression_.Plan(verb, &sources.back());
        updater_.AddParams(item.key, &sources.back());
      }
      sources[at].priority = std::max(sources[at].priority, item.priority);
      values[at].insert(values[at].end(), item.values.begin(), item.values.end());
      if (values[at].size() > 1 && !IsArithmetic(record->info.dtype)) {
        throw Fail(Code::kInvalidArgument, "{} {}: {} values cannot be summed or updated", verb,
                   item.key.ToString(), Name(record->info.dtype));
      }
    }
  }
  std::vector<std::pair<PushSource*, std::span<const NDArray* const>>> on_gpus;
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i].values = values[i].size();
    const std::span all(values[i].data(), values[i].size());
    const bool is_for_gpus = sources[i].residual == nullptr && sources[i].record->value_bytes > 0;
    if (is_for_gpus && std::ranges::any_of(all, IsOnGpu)) {
      on_gpus.emplace_back(&sources[i], all);
    } else {
      GatherValues(verb, all, &sources[i]);
    }
  }
  if (!on_gpus.empty()) GatherFromGpus(verb, std::move(on_gpus));
  compression_.Compress(&sources);
  return sources;
}

// Gathers values that are on the host, or that are copied there to be compressed.
void TransferBuilder::GatherValues(std::string_view verb, std::span<const NDArray* const> values,
                                   PushSource* source) {
  const KeyView key = source->record->key.view();
  if (source->residual != nullptr) {
    source->packed = AllOnHost(verb, key, values);
    return;
  }
  for (const NDArray* value : values) {
    NamingKey(verb, key, [&] { core_.calls.WaitFor(*value, Access::kRead); });
  }
  if (source->record->info.by_rows) return rows_.EncodeAllRows(verb, values, source);
  if (values.size() == 1) {
    source->is_own = !values[0]->contiguous();
    // An empty array may be on a GPU.
    const bool is_empty = values[0]->size() == 0;
    source->array =
        is_empty ? NDArray::Empty(values[0]->shape(), values[0]->dtype()) : values[0]->Packed();
    return;
  }
  std::vector<NDArray> packed;
  std::vector<const void*> pointers;
  for (const NDArray* value : values) {
    packed.push_back(value->Packed());
    pointers.push_back(packed.back().data());
  }
  const DType dtype = packed[0].dtype();
  const NDArray sum = NDArray::Empty(packed[0].shape(), ComputeType(dtype));
  TileJob job;
  job.dtype = dtype;
  job.count = static_cast<size_t>(sum.size());
  job.sources = pointers;
  job.value = sum.data();
  job.is_wide = true;
  RunJobs({&job, 1}, ThreadsFor(core_.options.threads));
  source->Take(sum);
}

void TransferBuilder::AwaitSum(const GpuSums& gpus, size_t lot) {
  core_.calls.Timed(WaitCause::kArray, [&] { gpus.Await(lot, core_.options.patience); });
}

std::vector<NDArray> TransferBuilder::AllOnHost(std::string_view verb, const KeyView& key,
                                                std::span<const NDArray* const> arrays) {
  GpuSums gpus(verb);  // each array is a sum by itself
  for (const NDArray* array : arrays) {
    if (IsOnGpu(array) && array->size() > 0) gpus.Add(key, {&array, 1});
  }
  gpus.Start(core_.options.patience);
  std::vector<NDArray> all;
  size_t copied = 0;
  for (const NDArray* array : arrays) {
    if (!IsOnGpu(array)) {
      NamingKey(verb, key, [&] { core_.calls.WaitFor(*array, Access::kRead); });
      all.push_back(array->Packed());
    } else if (array->size() == 0) {
      all.push_back(NDArray::Empty(array->shape(), array->dtype()));
    } else {
      all.push_back(gpus.OnHost(copied++));
    }
  }
  for (size_t lot = 0; lot < gpus.lots(); ++lot) AwaitSum(gpus, lot);
  return all;
}

// Starts the sums of values on GPUs, those of keys with the highest priority first.
void TransferBuilder::GatherFromGpus(
    std::string_view verb,
    std::vector<std::pair<PushSource*, std::span<const NDArray* const>>> values) {
  std::ranges::stable_sort(values, std::greater(),
                           [](const auto& one) { return one.first->priority; });
  const auto gpus = std::make_shared<GpuSums>(verb);
  for (const auto& [source, its] : values) {
    source->gpus = gpus;
    source->gpu_sum = gpus->Add(source->record->key.view(), its);
  }
  gpus->Start(core_.options.patience);
  for (const auto& [source, its] : values) {
    source->Take(gpus->OnHost(source->gpu_sum));
  }
}

std::vector<PushSource> TransferBuilder::RowSources(std::string_view verb,
                                                    std::span<const RowsPushItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<PushSource> sources;
  std::vector<std::vector<const Rows*>> values;
  Positions positions;
  {
    const auto lock = core_.Lock(verb);
    for (const RowsPushItem& item : items) {
      const RecordPtr record = core_.keys.Get(verb, item.key);
      const RowGeometry geometry = GeometryOf(verb, *record);
      if (item.values.empty()) {
        throw Fail(Code::kInvalidArgument, "{} {}: the list of values is empty", verb,
                   item.key.ToString());
      }
      ForEachOf("value", item.values.size(),
                [&](size_t i) { CheckRows(verb, item.key, item.values[i], geometry); });
      const auto [position, is_new] = positions.emplace(record.get(), sources.size());
      if (is_new) {
        updater_.Check(verb, *record);
        sources.push_back({.record = record, .priority = item.priority});
        values.emplace_back();
        updater_.AddParams(item.key, &sources.back());
      }
      PushSource& source = sources[position->second];
      source.priority = std::max(source.priority, item.priority);
      for (const Rows* rows : item.values) {
        values[position->second].push_back(rows);
        source.bytes += rows->values.bytes();
      }
    }
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    PushSource& source = sources[i];
    const KeyView key = source.record->key.view();
    const RowGeometry geometry = GeometryOf(verb, *source.record);
    std::vector<NDArray> packed;
    std::vector<RowList> lists;
    size_t total = 0;
    packed.reserve(2 * values[i].size());
    lists.reserve(values[i].size());
    for (const Rows* value : values[i]) {
      core_.calls.WaitFor(value->ids, Access::kRead);
      core_.calls.WaitFor(value->values, Access::kRead);
      packed.push_back(value->ids.Packed());
      const auto some = IdsOf(packed.back());
      packed.push_back(value->values.Packed());
      CheckIds(verb, key, some, geometry.row_count);
      lists.push_back({some, packed.back().data()});
      total += some.size();
    }
    CheckRowTotal(verb, key, total);
    source.values = values[i].size();
    if (source.record->info.by_rows) {
      rows_.EncodeRows(verb, lists, &source);
    } else {
      rows_.EncodeRuns(verb, lists, &source);
    }
  }
  return sources;
}

// Throws if a key of the call has both rows and whole values.
void TransferBuilder::CheckNoneIsBoth(std::string_view verb, std::span<const PushSource> sources,
                                      std::span<const PushItem> whole) const {
  Positions with_rows;
  for (const PushSource& source : sources) with_rows.emplace(source.record.get(), 0);
  const auto lock = core_.Lock(verb);
  for (const PushItem& item : whole) {
    if (!with_rows.contains(core_.keys.Get(verb, item.key).get())) continue;
    throw Fail(Code::kInvalidArgument,
               "{} {}: the call pushes rows and a whole array to it; use one of them", verb,
               item.key.ToString());
  }
}

// ---- pulls --------------------------------------------------------------------------------------

std::vector<PullTarget> TransferBuilder::Targets(std::string_view verb,
                                                 std::span<const PullItem> items,
                                                 std::span<const PushItem> inputs) {
  std::vector<PullTarget> targets;
  std::vector<SmallVector<const NDArray*>> outs;
  targets.reserve(items.size());
  outs.reserve(items.size());
  {
    const auto lock = core_.Lock(verb);
    for (const PullItem& item : items) {
      const RecordPtr record = core_.keys.Get(verb, item.key);
      CheckOuts(verb, item, WholeShape(verb, *record), record->info.dtype);
      if (record->info.by_rows) CheckOfHost(verb, item.key, item.outs);
      targets.push_back({record, {}, {}, item.priority});
      if (!record->info.by_rows) targets.back().bytes = item.outs.size() * record->value_bytes;
      outs.emplace_back(item.outs.begin(), item.outs.end());
    }
  }
  // Values arrive directly in the outputs unless arrays of the call share memory.
  OverlapCheck overlap;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const NDArray* value : inputs[i].values) overlap.Reads(i, *value);
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    for (const NDArray* out : outs[i]) overlap.Writes(i, *out);
  }
  const bool shares = overlap.Conflicts();
  std::shared_ptr<GpuLandings> gpus;
  std::vector<std::optional<size_t>> gpu_landings(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const KVStore::KeyInfo& info = targets[i].record->info;
    const auto on_host = std::stable_partition(outs[i].begin(), outs[i].end(), IsOnGpu);
    if (on_host != outs[i].begin() && info.shape.size() > 0) {
      if (gpus == nullptr) gpus = std::make_shared<GpuLandings>(std::string(verb), shares);
      gpu_landings[i] = gpus->Add(items[i].key, info.shape, info.dtype, {outs[i].begin(), on_host});
    }
    outs[i].erase(outs[i].begin(), on_host);
  }
  if (gpus != nullptr) gpus->Prepare();
  for (size_t i = 0; i < targets.size(); ++i) {
    const KVStore::KeyInfo& info = targets[i].record->info;
    targets[i].gpus = gpus;
    targets[i].lands_for_gpus = gpu_landings[i].has_value();
    if (gpu_landings[i]) targets[i].landing = gpus->OnHost(*gpu_landings[i]);
    if (info.by_rows) {
      for (const NDArray* out : outs[i]) {
        core_.calls.WaitFor(*out, Access::kWrite);
        targets[i].outs.push_back(*out);
        targets[i].bytes += out->bytes();
      }
      rows_.AskForAllRows(&targets[i]);
      continue;
    }
    for (const NDArray* out : outs[i]) {
      core_.calls.WaitFor(*out, Access::kWrite);
      const bool can_land = !shares && !targets[i].landing && out->contiguous() &&
                            out->dtype() == info.dtype && outs[i].size() == 1;
      if (can_land) {
        targets[i].landing = *out;
      } else {
        targets[i].outs.push_back(*out);
      }
    }
    if (!targets[i].landing) targets[i].landing = NDArray::Empty(info.shape, info.dtype);
  }
  return targets;
}

std::vector<PullTarget> TransferBuilder::RowTargets(std::string_view verb,
                                                    std::span<const RowsPullItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<PullTarget> targets;
  std::vector<std::vector<const RowsPullItem*>> readings;
  Positions positions;
  {
    const auto lock = core_.Lock(verb);
    for (const RowsPullItem& item : items) {
      const RecordPtr record = core_.keys.Get(verb, item.key);
      CheckByRows(verb, item.key, record->info.by_rows);
      CheckRowsOut(verb, item, GeometryOf(verb, *record));
      const auto [position, is_new] = positions.emplace(record.get(), targets.size());
      if (is_new) {
        targets.push_back({.record = record, .priority = item.priority});
        readings.emplace_back();
      }
      PullTarget& target = targets[position->second];
      target.priority = std::max(target.priority, item.priority);
      target.bytes += item.out->bytes();
      readings[position->second].push_back(&item);
    }
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    PullTarget& target = targets[i];
    std::vector<int64_t> ids;
    for (const RowsPullItem* reading : readings[i]) {
      core_.calls.WaitFor(*reading->ids, Access::kRead);
      core_.calls.WaitFor(*reading->out, Access::kWrite);
      const NDArray packed = reading->ids->Packed();
      const auto some = IdsOf(packed);
      CheckIds(verb, target.record->key.view(), some, target.record->info.row_count);
      ids.insert(ids.end(), some.begin(), some.end());
      target.outs.push_back(*reading->out);
      target.out_ends.push_back(ids.size());
    }
    CheckRowTotal(verb, target.record->key.view(), ids.size());
    rows_.AskForRows(ids, &target);
  }
  return targets;
}

}  // namespace tkv
