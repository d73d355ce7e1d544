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

// Waits for all that is in the way of memory that others use without a stream that is known: what is given
// to a device then ends by itself, and the host waits for it without an interrupt.
//   throws  as Storage::WaitReadable
void WaitForOthers(std::span<const NDArray> reads, std::span<const NDArray> writes);

// Orders the stream after what is in the way of the arrays and enters the work with them.  Then the
// caller gives it to the stream and calls Given; if it is destroyed before, nothing was given.  The
// arrays stay until then.
class DeviceWork final {
 public:
  //   blocks  for what only the host can wait for, and as WaitForOthers
  //   throws  kDeadlineExceeded, kUnavailable, kResourceExhausted, kInternal
  DeviceWork(Stream* stream, std::span<const NDArray> reads, std::span<const NDArray> writes);
  // The same for a caller who has waited for others and holds the lock, for work of several streams:
  // nobody else enters any between.
  //   done  an event that nobody has, for the end of the work
  DeviceWork(const EnqueueLock& lock, std::shared_ptr<Event> done, Stream* stream,
             std::span<const NDArray> reads, std::span<const NDArray> writes);
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  Event* done() const noexcept { return done_.get(); }
  // Others who use the memory come after the work: their stream waits for it, or the host does, which
  // nobody can interrupt because the work cannot be taken back.
  //   blocks  for the work; a device that does not end it within kHazardPatience is lost
  void Given() noexcept {
    done_->Record(&stream_);
    Recorded();
  }
  // The same for work whose giver has recorded it.
  void Recorded() noexcept;

 private:
  Stream& stream_;
  const std::span<const NDArray> reads_, writes_;
  const std::shared_ptr<Event> done_;
};

}  // namespace tkv
