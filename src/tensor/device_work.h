// Work on arrays that one call gives to one stream of a device.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/small_vector.h"
#include "tensor/on_device.h"

namespace tkv {

// Memory that work uses, and that stays until the work is given.
using Storages = SmallVector<std::shared_ptr<Storage>, 4>;
Storages StoragesOf(std::span<const NDArray> arrays);

// What work of a stream uses.
struct StreamUse {
  Stream* stream = nullptr;
  Storages reads, writes;
  std::shared_ptr<Event> done;        // of the work, which nobody has yet
  std::function<std::string()> name;  // of the work, for errors; null or "": it has none
  // Whether Given waits for the work where others use its memory on streams that are not known.
  bool is_awaited = true;
};

// Orders work of several streams after what is in its way and enters it with the arrays; nobody else
// enters any between.  Each of them is recorded or abandoned then, before this thread waits for an array.
//   blocks  for what only the host can wait for: operations of the host, work that another thread has
//           entered and not given yet, and all that is in the way of memory that others use without a
//           stream that is known.  The lock is free meanwhile, because operations of the host may end with
//           work for a device
//   throws  kDeadlineExceeded, kUnavailable, kResourceExhausted, kInternal, what the interrupt throws
void EnterTogether(std::span<const StreamUse> uses,
                   std::chrono::nanoseconds patience = kHazardPatience);

// Entered when it is made.  Then the caller gives it to the stream and calls Given; if it is destroyed
// before, nothing was given.
class DeviceWork final {
 public:
  //   blocks, throws  as EnterTogether
  DeviceWork(Stream* stream, std::span<const NDArray> reads, std::span<const NDArray> writes,
             std::chrono::nanoseconds patience = kHazardPatience);
  // Has been entered with others.
  explicit DeviceWork(StreamUse use) noexcept : use_(std::move(use)) {}
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  Event* done() const noexcept { return use_.done.get(); }
  // Others who use the memory come after the work: their stream waits for it, or the host does, which
  // nobody can interrupt because the work cannot be taken back; work that is not awaited is the caller's
  // to wait for, where it has `others_left`.
  //   blocks  for the work; a device that does not end it within kHazardPatience is lost
  void Given() noexcept {
    use_.done->Record(use_.stream);
    Recorded();
  }
  // The same for work whose giver has recorded it.
  void Recorded() noexcept;
  // Others may use the memory before the work has ended.
  bool others_left() const noexcept { return others_left_; }

 private:
  bool TheirStreamsWait() noexcept;

  const StreamUse use_;
  bool others_left_ = false;
};

// Gives n parts of entered work to its stream by give(i).  What was given counts also where a later part
// fails: who uses its memory waits for it.
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
