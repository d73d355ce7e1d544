#include "dist/transfer_calls.h"

#include <algorithm>
#include <atomic>
#include <boost/unordered/unordered_flat_map.hpp>
#include <utility>

#include "store/checks.h"

namespace tkv {
namespace {

// Returns the number of the training step that pushes belong to; 0: none.
uint32_t StepOf(std::span<const PushItem> items) {
  uint32_t step = 0;
  for (const PushItem& item : items) step = std::max(step, item.step.number);
  return step;
}

}  // namespace

// Notes the pushes of a call that was launched.  A refused call changes no counter, and its
// hyperparameters count as not sent.
void TransferCalls::NotePushed(const std::vector<PushSource>& sources) {
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

TransferCalls::Pulled TransferCalls::PulledOf(const std::vector<PullTarget>& targets) {
  Pulled pulled;
  pulled.reserve(targets.size());
  for (const PullTarget& target : targets) pulled.emplace_back(target.record, target.bytes);
  return pulled;
}

void TransferCalls::CountPulled(const Pulled& pulled) {
  std::lock_guard lock(core_.keys.mutex());
  for (const auto& [record, bytes] : pulled) record->bytes.pulled_bytes += bytes;
}

CallPtr TransferCalls::Push(const std::string& verb, std::span<const PushItem> items,
                            bool until_done) {
  const std::vector<KeyView> keys = KeysOf(items);
  core_.calls.RaiseUnseen(verb, keys);
  saver_.SaveIfDue(keys, StepOf(items));
  return StartPushes(verb, builder_.Sources(verb, items), until_done);
}

CallPtr TransferCalls::StartPushes(const std::string& verb, const std::vector<PushSource>& sources,
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
    arrays_.DetachSources(call, sources);
  } catch (...) {
    // The caller gets no ticket, so a later verb reports how the call ends.
    core_.calls.Tracked(call);
    throw;
  }
  return call;
}

CallPtr TransferCalls::Pull(const std::string& verb, std::span<const PullItem> items,
                            bool is_async) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  core_.calls.RaiseUnseen(verb, KeysOf(items));
  return StartPulls(verb, builder_.Targets(verb, items, {}), is_async);
}

CallPtr TransferCalls::StartPulls(const std::string& verb, std::vector<PullTarget> targets,
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
  core_.worker->calls().Launch(call, std::move(operations));
  CountPulled(pulled);
  if (is_async) arrays_.MarkArrays(call, {}, outputs);
  return call;
}

CallPtr TransferCalls::PushPull(const std::string& verb, std::span<const PushItem> items,
                                std::span<const PullItem> outs, bool is_async) {
  const std::vector<KeyView> keys = KeysOf(items);
  core_.calls.RaiseUnseen(verb, keys);
  core_.calls.RaiseUnseen(verb, KeysOf(outs));
  saver_.SaveIfDue(keys, StepOf(items));
  std::vector<PullTarget> targets = builder_.Targets(verb, outs, items);
  const std::vector<PushSource> sources = builder_.Sources(verb, items);
  const Pulled pulled = PulledOf(targets);
  const CallPtr call = core_.calls.New(verb);
  std::vector<StoreCalls::Part> parts;
  parts.reserve(sources.size() + targets.size());
  std::vector<bool> is_pulled(targets.size());
  boost::unordered_flat_map<const KeyRecord*, size_t> places;  // of the keys in `targets`
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
  if (is_async) arrays_.MarkArrays(call, sources, outputs);
  return call;
}

CallPtr TransferCalls::PushRows(const std::string& verb, std::span<const RowsPushItem> items,
                                std::span<const PushItem> whole, bool until_done) {
  std::vector<KeyView> keys = KeysOf(items);
  for (const PushItem& item : whole) keys.push_back(item.key);
  core_.calls.RaiseUnseen(verb, keys);
  saver_.SaveIfDue(keys, 0);
  std::vector<PushSource> sources;
  if (!items.empty() || whole.empty()) sources = builder_.RowSources(verb, items);
  if (!whole.empty()) {
    builder_.CheckNoneIsBoth(verb, sources, whole);
    for (PushSource& other : builder_.Sources(verb, whole)) sources.push_back(std::move(other));
  }
  return StartPushes(verb, sources, until_done);
}

CallPtr TransferCalls::PullRows(const std::string& verb, std::span<const RowsPullItem> items,
                                bool is_async) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  core_.calls.RaiseUnseen(verb, KeysOf(items));
  return StartPulls(verb, builder_.RowTargets(verb, items), is_async);
}

}  // namespace tkv
