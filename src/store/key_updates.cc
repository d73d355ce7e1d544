#include "store/key_updates.h"

#include <utility>

#include "store/checks.h"
#include "store/gpu_calls.h"
#include "store/home.h"
#include "update/program_body.h"
#include "update/random.h"

namespace tkv {
namespace {

// Returns the state of a value before its first update by the optimizer.
UpdateState<NDArray> FirstState(const Entry& entry, const Optimizer& optimizer) {
  const NDArray& value = entry.value;
  if (IsOnGpu(entry)) return StateOnGpu(value, optimizer);
  return PrepareState<NDArray>(
      optimizer.program(), 0, optimizer.multi_precision(), value.dtype(), value.data(),
      static_cast<size_t>(value.size()), [&](bool is_array) {
        const NDArray made =
            is_array ? NDArray::Empty(value.shape(), ComputeType(value.dtype()), value.context())
                     : NDArray::Empty({1}, DType::kF64, value.context());
        return std::pair(made, made.data());
      });
}

}  // namespace

KeyUpdates::KeyUpdates(std::string_view verb, Updater* updater, size_t count)
    : verb_(verb),
      updater_(*updater),
      optimizer_(*updater->optimizer),
      scalars_(count),
      states_(count, boost::container::default_init) {}  // Bind sets what jobs read

KeyUpdates::KeyState KeyUpdates::StateOf(size_t group, const Entry& entry) {
  if (entry.state_of == updater_.StateOwner()) {
    return {entry.states, entry.master, static_cast<double>(entry.updates + 1)};
  }
  fresh_.push_back(
      {group, NamingKey(verb_, entry.key.view(), [&] { return FirstState(entry, optimizer_); })});
  return {fresh_.back().state.states, fresh_.back().state.master, 1};
}

KeyUpdates::KeyState KeyUpdates::Bind(size_t group, const Entry& entry, TileJob* job) {
  const KeyState state = StateOf(group, entry);
  auto& addresses = states_[group];
  for (size_t i = 0; i < state.arrays.size(); ++i) addresses[i] = state.arrays[i].data();
  job->states = {addresses.data(), state.arrays.size()};
  NamingKey(verb_, entry.key.view(), [&] {
    job->update = &updater_.CompiledFor(job->dtype);
    scalars_[group] =
        bound_.Bind(*job->update, optimizer_.ParamsFor(entry.key.view()), job->states, state.round);
  });
  job->scalars = &scalars_[group];
  if (optimizer_.program().body().draw_count > 0) job->stream = StreamOf(entry.key.view());
  if (state.master) job->master = static_cast<float*>(state.master.data());
  return state;
}

void KeyUpdates::Keep(std::span<Entry* const> entries, std::span<const TileJob> jobs,
                      Updated updated) {
  auto next = fresh_.begin();
  for (size_t g = 0; g < entries.size(); ++g) {
    Entry& entry = *entries[g];
    const bool is_fresh = next != fresh_.end() && next->group == g;
    const auto made = is_fresh ? next++ : next;
    if (entry.by_rows() || (updated == Updated::kOnGpus && !IsOnGpu(entry))) continue;
    if (is_fresh) {
      entry.state_of = updater_.StateOwner();
      entry.states = std::move(made->state.states);
      entry.master = std::move(made->state.master);
      entry.updates = 0;
    }
    KeepScalars(scalars_[g], jobs[g].states);
    ++entry.updates;
  }
}

}  // namespace tkv
