// Where the values of keys are at home: on the host, or, in stores of the kind device, on the GPU that
// sums and updates what is pushed to them.

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

// Thread-safe.
class Homes final {
 public:
  // Moves values that a call pushes, claimed to write, to where it sums and updates them, and says in the
  // claim whether a value of it is on a GPU.  A key is at
  // home on a GPU from the first call on that pushes values of GPUs to it: of keys that get a home in one
  // call the largest first, each on that GPU of its values where the fewest bytes are.
  //   stays   whether the call needs the value of that key of the claim on the host
  //   throws  kResourceExhausted, kUnavailable, kInternal, kDeadlineExceeded; nothing has moved
  void Place(std::string_view verb, std::span<const PushItem> items,
             const std::function<bool(size_t group)>& stays, Claim* claim);
  // Whether a call with these pushes may have to do with GPUs: they bring values of one, or a key has had
  // a home on one.
  bool Concern(std::span<const PushItem> items) const {
    return any_.load(std::memory_order_relaxed) || std::ranges::any_of(items, BringsGpus);
  }
  // Moves all values of a call to the host.
  //   throws  as Place; some may have moved, and are the same
  void PlaceOnHost(std::string_view verb, Claim* claim);
  // The key is gone.
  void Forget(const Entry& entry);

 private:
  using Wishes = std::map<size_t, std::vector<int32_t>>;  // by group: the GPUs of the values

  static bool BringsGpus(const PushItem& item) {
    return std::ranges::any_of(item.values, [](const NDArray* v) { return IsOfDevice(*v); });
  }
  void MovePushed(std::string_view verb, std::span<const PushItem> items,
                  const std::function<bool(size_t group)>& stays, const Claim& claim);
  void Choose(const Wishes& wishes, const Claim& claim);
  void Unset(Entry* entry);

  std::mutex mutex_;
  std::map<int32_t, size_t> bytes_;  // of the keys at home on each GPU
  std::atomic<bool> any_ = false;    // some key has, or has had, a home
};

}  // namespace tkv
