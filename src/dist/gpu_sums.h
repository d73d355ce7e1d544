// The sums of values that a call pushes from GPUs.  Each GPU computes the sums of all its keys by
// one launch.  Copies to the host then overlap with the sending of earlier sums to servers.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/gpu_lots.h"
#include "tkv/key.h"

namespace tkv {

class GpuSums final {
 public:
  // Makes an empty object.
  //   verb  for errors
  explicit GpuSums(std::string_view verb) : verb_(verb) {}

  // Adds the values of a key: of one shape and dtype, at least one of them on a GPU.  The first
  // such GPU computes the sum, in the order of the values.
  //   returns  the number of the sum
  size_t Add(const KeyView& key, std::span<const NDArray* const> values);
  // Computes all sums.  On return the values have been read or are marked as in use, and copies to
  // the host are under way.
  //   blocks  for work that only the host can wait for, and while the driver compiles
  //   throws  kResourceExhausted, kUnavailable, kUnimplemented, kInternal, kDeadlineExceeded
  void Start(std::chrono::nanoseconds patience);
  // Returns the array that receives a sum.  Its content is valid after the copy has ended.  A sum
  // of several 16-bit values is float32.
  const NDArray& OnHost(size_t sum) const { return sums_[sum].on_host; }

  // The sums that one copy brings form a lot.
  size_t lots() const noexcept { return lots_.all().size(); }
  size_t LotOf(size_t sum) const noexcept { return sums_[sum].slot.lot; }
  // Waits for a lot.
  //   blocks  until the copy has ended, at most the patience
  //   throws  kDeadlineExceeded, kUnavailable, what the interrupt throws
  void Await(size_t lot, std::chrono::nanoseconds patience) const;

 private:
  struct Sum {
    Key key;
    std::vector<NDArray> values;  // until the sum has arrived
    GpuLots::Slot slot;
    NDArray on_host;
  };

  bool IsInPlace(const Sum& sum) const;
  static DType TypeOf(const Sum& sum);
  void SumOnGpus(std::chrono::nanoseconds patience);
  void CopyToHost(const GpuLot& lot, std::chrono::nanoseconds patience) const;
  template <typename F>
  void Naming(size_t lot, F f) const;

  const std::string verb_;
  std::vector<Sum> sums_;
  GpuLots lots_;
};

}  // namespace tkv
