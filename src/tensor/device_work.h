// Work on arrays that one call gives to one stream of a device.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/small_vector.h"
#include "tensor/on_device.h"

namespace tkv {

// The storages that work uses; they are kept until the work is given.
using Storages = SmallVector<std::shared_ptr<Storage>, 4>;
Storages StoragesOf(std::span<const NDArray> arrays);

// A stream, the memory that its work uses, and the event for the end of the work.
struct StreamUse {
  Stream* stream = nullptr;
  Storages reads, writes;
  std::shared_ptr<Event> done;        // end of the work; no other code has the event yet
  std::function<std::string()> name;  // of the work, for errors; null or "": none
  // Given waits for the work if its memory has foreign users on unknown streams.
  bool is_awaited = true;
};

// Orders work of several streams after conflicting earlier uses of its memory, and registers all of
// it as one step, without other registrations in between.  The caller must record or abandon each
// event before this thread waits for an array.
//   blocks  for conflicting uses that only the host can wait for: operations of the host, work that
//           another thread has registered and not given yet, and uses of foreign memory whose
//           stream is unknown.  Holds no lock meanwhile, because an operation of the host may end
//           with work for a device
//   throws  kDeadlineExceeded, kUnavailable, kResourceExhausted, kInternal, what the interrupt
//           throws
void EnterTogether(std::span<const StreamUse> uses,
                   std::chrono::nanoseconds patience = kHazardPatience);

// Work that the constructor registers with its memory.  Then the caller gives it to the stream and
// calls Given.  Destroying it earlier means that no work was given.
class DeviceWork final {
 public:
  //   blocks, throws  as EnterTogether
  DeviceWork(Stream* stream, std::span<const NDArray> reads, std::span<const NDArray> writes,
             std::chrono::nanoseconds patience = kHazardPatience);
  // For work that EnterTogether has registered already.
  explicit DeviceWork(StreamUse use) noexcept : use_(std::move(use)) {}
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  Event* done() const noexcept { return use_.done.get(); }
  // Tells that the work was given.  Makes the streams of foreign users of the memory wait for it.
  // If a stream is unknown, the host waits instead; this wait cannot be interrupted, because the
  // work cannot be taken back.  If the work is not awaited, the caller has to wait if `others_left`
  // is true.
  //   blocks  for the work; a device that does not end it within kHazardPatience is lost
  void Given() noexcept {
    use_.done->Record(use_.stream);
    Recorded();
  }
  // The same for work whose event the caller has recorded.
  void Recorded() noexcept;
  // Returns true if foreign code may use the memory before the work has ended.
  bool others_left() const noexcept { return others_left_; }

 private:
  bool TheirStreamsWait() noexcept;

  const StreamUse use_;
  bool others_left_ = false;
};

// Gives n parts of registered work to its stream by give(i).  If a later part fails, the parts
// already given still count as work, so that users of the memory wait for them.
template <typename F>
void GiveParts(size_t n, DeviceWork* work, F give) {
  size_t given = 0;
  try {
    for (; given < n; ++given) give(given);
  } catch (...) {
    if (given > 0) work->Given();
    throw;
  }
  work->Given();
}

}  // namespace tkv
