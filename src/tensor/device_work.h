// Work on arrays that one call gives to one stream of a device.

#pragma once

#include <initializer_list>
#include <memory>
#include <span>

#include "device/device.h"
#include "tkv/ndarray.h"

namespace tkv {

inline cuda::Address AddressOf(const NDArray& array) {
  return reinterpret_cast<cuda::Address>(array.data());
}

// Orders the stream after what is in the way of the arrays and enters the work with them.  Then the
// caller gives it to the stream and calls Given; if it is destroyed before, nothing was given.
class DeviceWork final {
 public:
  //   blocks  for what only the host can wait for
  //   throws  kDeadlineExceeded, kUnavailable, kResourceExhausted, kInternal
  DeviceWork(Stream* stream, std::span<const NDArray> reads, std::span<const NDArray> writes);
  // The same for a caller who holds the lock, for work of several streams: nobody else enters any
  // between.
  //   done  an event that nobody has, for the end of the work
  DeviceWork(const EnqueueLock& lock, std::shared_ptr<Event> done, Stream* stream,
             std::span<const NDArray> reads, std::span<const NDArray> writes);
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  Event* done() const noexcept { return done_.get(); }
  void Given() noexcept { done_->Record(&stream_); }

 private:
  Stream& stream_;
  const std::shared_ptr<Event> done_;
};

}  // namespace tkv
