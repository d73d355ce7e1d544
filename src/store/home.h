// The homes of keys' values: the host, or, in stores of the kind device, the GPU that sums and
// updates the pushed values.

#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string_view>

#include "store/claim.h"
#include "tensor/device_copy.h"

namespace tkv {

inline bool IsOnGpu(const Entry& entry) { return !entry.by_rows() && IsOfDevice(entry.value); }

// The homes of a store's keys, balanced over the GPUs.  Thread-safe.
class Homes final {
 public:
  // Moves each key that a call pushes to the device that sums and updates it.  The claim has the
  // keys to write; its `has_gpus` becomes true if a value is on a GPU.
  //
  // A key gets a home on the first call that pushes values on GPUs to it.  The largest keys of a
  // call choose first.  Each chooses, among the GPUs of its values, the one with the fewest bytes
  // of keys so far.
  //   stays   returns true if the call needs the value of that group on the host
  //   throws  kResourceExhausted, kUnavailable, kInternal, kDeadlineExceeded; nothing has moved
  void Place(std::span<const PushItem> items, const std::function<bool(size_t group)>& stays,
             Claim* claim);
  // Returns true if a call with these pushes may involve GPUs.  Either a pushed value is on a GPU,
  // or some key has ever had its home on one.
  bool Concern(std::span<const PushItem> items) const {
    return any_.load(std::memory_order_relaxed) || std::ranges::any_of(items, BringsGpus);
  }
  // Moves all values of a call to the host.
  //   throws  as Place; some values may have moved, unchanged
  void PlaceOnHost(Claim* claim);
  // Subtracts a deleted key from its GPU's bytes.
  void Forget(const Entry& entry);

 private:
  using Wishes = std::map<size_t, std::vector<int32_t>>;  // by group: GPUs of the pushed values

  static bool BringsGpus(const PushItem& item) {
    return std::ranges::any_of(item.values, [](const NDArray* v) { return IsOfDevice(*v); });
  }
  void MovePushed(std::span<const PushItem> items, const std::function<bool(size_t group)>& stays,
                  const Claim& claim);
  void Choose(const Wishes& wishes, const Claim& claim);
  void Unset(Entry* entry);

  std::mutex mutex_;
  std::map<int32_t, size_t> bytes_;  // bytes of the keys with their home on each GPU
  std::atomic<bool> any_ = false;    // some key has, or has had, a home
};

}  // namespace tkv
