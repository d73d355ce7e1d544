#include "store/home.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "device/device.h"
#include "store/checks.h"

namespace tkv {
namespace {

// The arrays of a key before it was moved.
struct Before {
  Entry* entry;
  NDArray value, master;
  std::vector<NDArray> states;
};

// Moves a key's arrays.  Scalar states stay on the host, where they are computed.
Before Move(Entry* entry, Context where, Shared* shared) {
  NDArray value = entry->value.WithContext(where);
  NDArray master = entry->master ? entry->master.WithContext(where) : NDArray();
  std::vector<NDArray> states = entry->states;
  const size_t arrays = states.empty() ? 0 : entry->state_of->program().states().size();
  for (size_t i = 0; i < arrays; ++i) states[i] = states[i].WithContext(where);
  // Other calls read the shape of a value before they wait for its key.
  std::lock_guard lock(shared->mutex);
  std::swap(entry->value, value);
  std::swap(entry->master, master);
  std::swap(entry->states, states);
  return {entry, std::move(value), std::move(master), std::move(states)};
}

void MoveBack(std::span<Before> moved, Shared* shared) noexcept {
  std::lock_guard lock(shared->mutex);
  for (Before& before : moved) {
    std::swap(before.entry->value, before.value);
    std::swap(before.entry->master, before.master);
    std::swap(before.entry->states, before.states);
  }
}

// Returns true if the key's GPU was lost and its value was loaded again.
bool IsHomeless(const Entry& entry) {
  return entry.home && !IsOnGpu(entry) && !Device::Get(*entry.home).is_usable();
}

}  // namespace

void Homes::Choose(const Wishes& wishes, const Claim& claim) {
  std::vector<size_t> order;
  for (const auto& [group, gpus] : wishes) order.push_back(group);
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t group) { return claim.entries[group]->bytes; });
  std::lock_guard lock(mutex_);
  for (const auto& [group, gpus] : wishes) {  // first: only this needs memory
    for (const int32_t gpu : gpus) bytes_.try_emplace(gpu, 0);
  }
  any_ = true;
  for (const size_t group : order) {
    const auto is_less = [&](int32_t a, int32_t b) {
      return std::pair(bytes_[a], a) < std::pair(bytes_[b], b);
    };
    Entry* const entry = claim.entries[group];
    entry->home = *std::ranges::min_element(wishes.at(group), is_less);
    bytes_[*entry->home] += entry->bytes;
  }
}

void Homes::Place(std::span<const PushItem> items, const std::function<bool(size_t group)>& stays,
                  Claim* claim) {
  MovePushed(items, stays, *claim);
  for (const Entry* entry : claim->entries) {
    if (!IsOnGpu(*entry)) continue;
    claim->has_gpus = true;
    NamingKey(claim->verb, entry->key.view(), [&] { CheckUsable(entry->value.context()); });
  }
}

void Homes::MovePushed(std::span<const PushItem> items,
                       const std::function<bool(size_t group)>& stays, const Claim& claim) {
  Wishes wishes;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t group = claim.push_groups[i];
    Entry* const entry = claim.entries[group];
    if (IsHomeless(*entry)) Unset(entry);
    if (entry->home || entry->by_rows() || !IsArithmetic(entry->dtype()) || stays(group)) continue;
    for (const NDArray* value : items[i].values) {
      if (IsOfDevice(*value)) wishes[group].push_back(value->storage()->memory().index);
    }
  }
  if (!wishes.empty()) Choose(wishes, claim);
  // On failure moves every key back.  A key that has chosen a home but whose value is not there
  // loses the home.
  struct Undo {
    ~Undo() {
      if (!is_done) MoveBack(moved, claim.shared);
      for (const auto& [group, gpus] : wishes) {
        if (!IsOnGpu(*claim.entries[group])) homes->Unset(claim.entries[group]);
      }
    }
    Homes* homes;
    const Wishes& wishes;
    const Claim& claim;
    std::vector<Before> moved = {};
    bool is_done = false;
  };
  Undo undo{this, wishes, claim};
  undo.moved.reserve(claim.push_groups.size());
  for (const size_t group : claim.push_groups) {
    Entry* const entry = claim.entries[group];
    if (!entry->home) continue;
    NamingKey(claim.verb, entry->key.view(), [&] {
      const Context where = stays(group) ? Context() : Context::Gpu(*entry->home);
      const bool is_there = IsOnGpu(*entry);
      if (is_there != (where.kind == DeviceKind::kGpu)) {
        undo.moved.push_back(Move(entry, where, claim.shared));
      }
    });
  }
  undo.is_done = true;
}

void Homes::PlaceOnHost(Claim* claim) {
  for (Entry* const entry : claim->entries) {
    if (!IsOnGpu(*entry)) continue;
    NamingKey(claim->verb, entry->key.view(), [&] { Move(entry, Context(), claim->shared); });
  }
}

void Homes::Unset(Entry* entry) {
  Forget(*entry);
  entry->home.reset();
}

void Homes::Forget(const Entry& entry) {
  if (!entry.home) return;
  std::lock_guard lock(mutex_);
  bytes_[*entry.home] -= entry.bytes;
}

}  // namespace tkv
