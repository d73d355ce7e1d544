// Pushes and pulls of a distributed store: checks and gathers values, starts operations and waits
// for them.

#include <algorithm>
#include <atomic>
#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <new>
#include <utility>

#include "base/duration.h"
#include "base/small_vector.h"
#include "dist/dist_store.h"
#include "dist/gpu_landings.h"
#include "dist/gpu_sums.h"
#include "store/checks.h"
#include "store/overlap.h"
#include "tensor/device_copy.h"
#include "tensor/strided.h"
#include "update/parallel.h"

namespace tkv {
namespace {

// The position of each key of a call in its list.
using Places = boost::unordered_flat_map<const void*, size_t>;

// Returns the number of the training step that pushes belong to; 0: none.
uint32_t StepOf(std::span<const PushItem> items) {
  uint32_t step = 0;
  for (const PushItem& item : items) step = std::max(step, item.step.number);
  return step;
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

// ---- gathering ----------------------------------------------------------------------------------

std::vector<PushSource> DistStore::GatherSources(std::string_view verb,
                                                 std::span<const PushItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<PushSource> sources;
  std::vector<SmallVector<const NDArray*>> values;
  sources.reserve(items.size());
  values.reserve(items.size());
  Places places;
  places.reserve(items.size());
  {
    const auto lock = core_.Lock(verb);
    for (const PushItem& item : items) {
      const RecordPtr record = core_.keys.Get(verb, item.key);
      CheckValues(verb, item, WholeShape(verb, *record), record->info.dtype);
      if (record->info.by_rows) CheckOfHost(verb, item.key, item.values);
      const auto [place, is_new] = places.emplace(record.get(), sources.size());
      const size_t at = place->second;
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
void DistStore::GatherValues(std::string_view verb, std::span<const NDArray* const> values,
                             PushSource* source) {
  const KeyView key = source->record->key.view();
  if (source->residual != nullptr) {
    source->packed = AllOnHost(verb, key, values);
    return;
  }
  for (const NDArray* value : values) {
    NamingKey(verb, key, [&] { core_.calls.WaitFor(*value, Access::kRead); });
  }
  if (source->record->info.by_rows) return row_encoder_.EncodeAllRows(verb, values, source);
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

void DistStore::AwaitSum(const GpuSums& gpus, size_t lot) {
  core_.calls.Timed(WaitCause::kArray, [&] { gpus.Await(lot, core_.options.patience); });
}

std::vector<NDArray> DistStore::AllOnHost(std::string_view verb, const KeyView& key,
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
void DistStore::GatherFromGpus(
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

std::vector<PullTarget> DistStore::GatherTargets(std::string_view verb,
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
    const KeyInfo& info = targets[i].record->info;
    const auto on_host = std::stable_partition(outs[i].begin(), outs[i].end(), IsOnGpu);
    if (on_host != outs[i].begin() && info.shape.size() > 0) {
      if (gpus == nullptr) gpus = std::make_shared<GpuLandings>(std::string(verb), shares);
      gpu_landings[i] = gpus->Add(items[i].key, info.shape, info.dtype, {outs[i].begin(), on_host});
    }
    outs[i].erase(outs[i].begin(), on_host);
  }
  if (gpus != nullptr) gpus->Prepare();
  for (size_t i = 0; i < targets.size(); ++i) {
    const KeyInfo& info = targets[i].record->info;
    targets[i].gpus = gpus;
    targets[i].lands_for_gpus = gpu_landings[i].has_value();
    if (gpu_landings[i]) targets[i].landing = gpus->OnHost(*gpu_landings[i]);
    if (info.by_rows) {
      for (const NDArray* out : outs[i]) {
        core_.calls.WaitFor(*out, Access::kWrite);
        targets[i].outs.push_back(*out);
        targets[i].bytes += out->bytes();
      }
      row_encoder_.AskForAllRows(&targets[i]);
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

// ---- operations ---------------------------------------------------------------------------------

// Returns the push of a value.  The call keeps the memory that it reads.
Operation::Push DistStore::PushOf(const PushSource& source, const CallPtr& call) {
  Operation::Push push;
  if (source.encoded) {
    push.value = *source.encoded;
  } else {
    push.value.bytes = MemoryOf(source.array);
  }
  push.scalars = source.scalars;
  push.step = source.step;
  call->keys.push_back(source.record);
  call->sources.push_back(push.value.bytes);
  return push;
}

// Returns the pull into a target.  The call keeps the memory that it writes.
Operation::Pull DistStore::PullOf(const PullTarget& target, const CallPtr& call) {
  Operation::Pull pull;
  pull.ids = target.ids;
  pull.out = {static_cast<std::byte*>(target.landing.HostData()), target.landing.bytes(),
              target.landing.storage()};
  call->keys.push_back(target.record);
  call->targets.push_back(pull.out.bytes());
  return pull;
}

// Notes the pushes of a call that was launched.  A refused call changes no counter, and its
// hyperparameters count as not sent.
void DistStore::NotePushed(const std::vector<PushSource>& sources) {
  std::lock_guard lock(core_.keys.mutex());
  for (const PushSource& source : sources) {
    if (source.params_sent_for != 0) {
      std::atomic_ref(source.record->params_sent_for).store(source.params_sent_for);
    }
    source.record->bytes.pushed_bytes +=
        source.bytes > 0 ? source.bytes : source.values * source.record->value_bytes;
    ++source.record->pushes;
    std::atomic_ref(source.record->last_step).store(source.step.number);
    saver_.Raise(source.record->rounds());
  }
}

DistStore::Pulled DistStore::PulledOf(const std::vector<PullTarget>& targets) {
  Pulled pulled;
  pulled.reserve(targets.size());
  for (const PullTarget& target : targets) pulled.emplace_back(target.record, target.bytes);
  return pulled;
}

void DistStore::CountPulled(const Pulled& pulled) {
  std::lock_guard lock(core_.keys.mutex());
  for (const auto& [record, bytes] : pulled) record->bytes.pulled_bytes += bytes;
}

std::shared_ptr<GpuLandings> DistStore::GpusOf(const std::vector<PullTarget>& targets) {
  return targets.empty() ? nullptr : targets[0].gpus;
}

// Sets the work to do when all values have arrived.  From now on, users of outputs on GPUs wait for
// it.
void DistStore::PrepareFinish(const CallPtr& call, std::vector<PullTarget> targets,
                              std::chrono::nanoseconds patience) {
  const std::shared_ptr<GpuLandings> gpus = GpusOf(targets);
  std::erase_if(targets, [](const PullTarget& target) { return target.outs.empty(); });
  if (targets.empty() && gpus == nullptr) return;
  for (const PullTarget& target : targets) {
    for (const NDArray& out : target.outs) call->targets.push_back(MemoryOf(out));
  }
  if (gpus != nullptr) {
    for (auto& memory : gpus->outputs()) call->targets.push_back({nullptr, 0, std::move(memory)});
    gpus->Enter(patience);
  }
  call->finish = [call = call.get(), gpus, targets = std::move(targets)] {
    for (const PullTarget& target : targets) {
      if (target.order != nullptr) {
        ScatterRows(target);
        continue;
      }
      for (const NDArray& out : target.outs) {
        const NDArray packed = out.contiguous() ? out : NDArray::Empty(out.shape(), out.dtype());
        const TileJob::Output output{packed.data(), packed.dtype()};
        TileJob job;
        job.dtype = target.landing.dtype();
        job.count = static_cast<size_t>(target.landing.size());
        job.value = target.landing.data();
        job.outputs = {&output, 1};
        RunJobs({&job, 1}, 1);
        if (!out.contiguous()) CopyElements(packed, out);
      }
    }
    if (gpus != nullptr) gpus->Run(&call->awaited);
  };
}

std::vector<NDArray> DistStore::OutputsOf(const std::vector<PullTarget>& targets) {
  std::vector<NDArray> outputs;
  for (const PullTarget& target : targets) {
    // A landing without other outputs is an array of the user; any other landing belongs to the
    // store.
    if (target.outs.empty() && !target.lands_for_gpus) outputs.push_back(target.landing);
    outputs.insert(outputs.end(), target.outs.begin(), target.outs.end());
  }
  return outputs;
}

CallPtr DistStore::PushAs(const std::string& verb, std::span<const PushItem> items,
                          bool until_done) {
  const std::vector<KeyView> keys = KeysOf(items);
  core_.calls.RaiseUnseen(verb, keys);
  saver_.SaveIfDue(keys, StepOf(items));
  return StartPushes(verb, GatherSources(verb, items), until_done);
}

CallPtr DistStore::StartPushes(const std::string& verb, const std::vector<PushSource>& sources,
                               bool until_done) {
  const CallPtr call = core_.calls.New(verb);
  std::vector<StoreCalls::Part> parts;
  for (const PushSource& source : sources) {
    parts.push_back({core_.calls.Make(PushOf(source, call), verb, source.record.get()), &source});
    parts.back().operation.priority = source.priority;
    if (until_done) {
      parts.push_back({core_.calls.Make(Operation::Wait{}, verb, source.record.get()), &source});
    }
  }
  core_.calls.Launch(call, std::move(parts));
  NotePushed(sources);
  try {
    core_.calls.FreeSources(call, sources);
  } catch (...) {
    // The caller gets no ticket, so a later verb reports how the call ends.
    core_.calls.Tracked(call);
    throw;
  }
  return call;
}

void DistStore::Push(std::span<const PushItem> items) {
  AsWorker(Verb::kPush, "push", [&] { core_.calls.Tracked(PushAs("push", items, false)); });
}

CallPtr DistStore::PullAs(const std::string& verb, std::span<const PullItem> items, bool is_async) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  core_.calls.RaiseUnseen(verb, KeysOf(items));
  return StartPulls(verb, GatherTargets(verb, items, {}), is_async);
}

CallPtr DistStore::StartPulls(const std::string& verb, std::vector<PullTarget> targets,
                              bool is_async) {
  const Pulled pulled = PulledOf(targets);
  const CallPtr call = core_.calls.New(verb);
  std::vector<Operation> operations;
  // An observer has no pushes to count rounds by, and a `load` may have changed the numbers of
  // rounds.
  if (core_.worker->is_observer()) {
    for (const PullTarget& target : targets) {
      operations.push_back(core_.calls.Make(Operation::FindBase{}, verb, target.record.get()));
    }
    call->on_outcome = [pulled, &ops = call->ops](const Outcome& outcome) {
      const auto at = static_cast<size_t>(std::ranges::find(ops, outcome.op) - ops.begin());
      if (at < pulled.size()) return;  // the outcome of a FindBase
      std::atomic_ref(pulled.at(at - pulled.size()).first->pulled).store(outcome.round);
    };
  }
  for (const PullTarget& target : targets) {
    operations.push_back(core_.calls.Make(PullOf(target, call), verb, target.record.get()));
    operations.back().priority = target.priority;
  }
  const std::vector<NDArray> outputs = is_async ? OutputsOf(targets) : std::vector<NDArray>();
  PrepareFinish(call, std::move(targets), core_.options.patience);
  core_.worker->Launch(call, std::move(operations));
  CountPulled(pulled);
  if (is_async) core_.calls.MarkArrays(call, {}, outputs);
  return call;
}

CallPtr DistStore::StartPushPull(const std::string& verb, std::span<const PushItem> items,
                                 std::span<const PullItem> outs, bool is_async) {
  const std::vector<KeyView> keys = KeysOf(items);
  core_.calls.RaiseUnseen(verb, keys);
  core_.calls.RaiseUnseen(verb, KeysOf(outs));
  saver_.SaveIfDue(keys, StepOf(items));
  std::vector<PullTarget> targets = GatherTargets(verb, outs, items);
  const std::vector<PushSource> sources = GatherSources(verb, items);
  const Pulled pulled = PulledOf(targets);
  const CallPtr call = core_.calls.New(verb);
  std::vector<StoreCalls::Part> parts;
  parts.reserve(sources.size() + targets.size());
  std::vector<bool> is_pulled(targets.size());
  Places places;
  places.reserve(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) places.emplace(targets[i].record.get(), i);
  for (const PushSource& source : sources) {
    const auto place = places.find(source.record.get());
    Operation::Push push = PushOf(source, call);
    Operation::Request request;
    if (place == places.end()) {
      request = std::move(push);
    } else {
      request = Operation::PushPull{std::move(push), PullOf(targets[place->second], call)};
      is_pulled[place->second] = true;
    }
    parts.push_back({core_.calls.Make(std::move(request), verb, source.record.get()), &source});
    parts.back().operation.priority = source.priority;
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (is_pulled[i]) continue;
    parts.push_back({core_.calls.Make(PullOf(targets[i], call), verb, targets[i].record.get())});
    parts.back().operation.priority = targets[i].priority;
  }
  const std::vector<NDArray> outputs = is_async ? OutputsOf(targets) : std::vector<NDArray>();
  PrepareFinish(call, std::move(targets), core_.options.patience);
  core_.calls.Launch(call, std::move(parts));
  NotePushed(sources);
  CountPulled(pulled);
  if (is_async) core_.calls.MarkArrays(call, sources, outputs);
  return call;
}

}  // namespace tkv
