// An interface to a disk for the records that do not fit into memory.
//
// The contents end with the process; only snapshots outlive it.  A snapshot has all rows, including
// those on the disk.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.h"

namespace tkv {

// A disk that stores blocks.  Thread-safe.
class RowDisk {
 public:
  // A block that is being written or has been written.  Its space is free again when the last
  // holder releases it.
  class Extent {
   public:
    enum class State : uint8_t { kWriting, kWritten, kFailed };
    virtual ~Extent() = default;
    State state() const noexcept { return state_.load(std::memory_order_acquire); }
    // Reads bytes of a block that has been written.
    //   blocks  while the disk reads
    //   throws  kUnavailable (naming the directory)
    virtual void Read(size_t at, size_t bytes, void* out) const = 0;
    // Starts to read bytes that a Read needs soon.
    virtual void Prefetch(size_t at, size_t bytes) const noexcept = 0;

   protected:
    void SetState(State state) noexcept { state_.store(state, std::memory_order_release); }

   private:
    std::atomic<State> state_{State::kWriting};
  };

  virtual ~RowDisk() = default;
  // Begins to write a block, which must not change from now on.
  //   returns  null if too many bytes are waiting to be written; the caller has to wait
  //   throws   std::bad_alloc
  virtual std::shared_ptr<Extent> Write(const Block& block) = 0;
  // Waits until no write is pending.
  //   blocks   at most `patience`
  virtual void Flush(std::chrono::nanoseconds patience) = 0;
  // Returns why the last write failed, or an empty text if it succeeded.
  virtual std::string failure() const = 0;
  virtual uint64_t bytes() const noexcept = 0;  // bytes of all extents
  // Returns the smallest page that is worth a write of its own.
  virtual size_t page_bytes_min() const noexcept = 0;
};

// A range of bytes of a block on the disk.
struct DiskRange {
  std::shared_ptr<const RowDisk::Extent> extent;
  size_t offset;
  size_t bytes;
};

}  // namespace tkv
