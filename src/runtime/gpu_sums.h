// The sums of values that a call pushes from GPUs, on their way to the host: those of all keys by one launch
// on each GPU, and each copied from there while others are on their way to servers.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gpu_lots.h"
#include "tkv/key.h"

namespace tkv {

class GpuSums final {
 public:
  //   verb  for errors
  explicit GpuSums(std::string_view verb) : verb_(verb) {}

  // The values of a key, of one shape and dtype, one of them at least on a GPU; the sum is made on the first
  // such GPU, in the order of the values.
  //   returns  the number of the sum
  size_t Add(const KeyView& key, std::span<const NDArray* const> values);
  // Sums all; the values have been read, or are in use, and copies to the host are under way.
  //   blocks  for what only the host can wait for, and while the driver compiles
  //   throws  kResourceExhausted, kUnavailable, kUnimplemented, kInternal, kDeadlineExceeded
  void Start(std::chrono::nanoseconds patience);
  // Returns the array that has a sum once its copy has ended.  A sum of several 16-bit values is float32.
  const NDArray& OnHost(size_t sum) const { return sums_[sum].on_host; }

  // Sums that one copy brings are a lot.
  size_t lots() const noexcept { return lots_.all().size(); }
  size_t LotOf(size_t sum) const noexcept { return sums_[sum].place.lot; }
  //   blocks  until the copy has ended, at most the patience
  //   throws  kDeadlineExceeded, kUnavailable, what the interrupt throws
  void Await(size_t lot, std::chrono::nanoseconds patience) const;

 private:
  struct Sum {
    Key key;
    std::vector<NDArray> values;  // until the sum has come
    GpuLots::Place place;
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
