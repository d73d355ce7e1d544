// Where records go that memory has no room for.
//
// What is there ends with the process: it is no store of its own.  Snapshots are what outlives a process,
// and they have all rows, wherever these are.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.h"

namespace tkv {

// Thread-safe.
class RowDisk {
 public:
  // Bytes that are on their way to the disk, or there; its place is free again with the last holder.
  class Extent {
   public:
    enum class State : uint8_t { kWriting, kWritten, kFailed };
    virtual ~Extent() = default;
    State state() const noexcept { return state_.load(std::memory_order_acquire); }
    // Of what has been written.
    //   blocks  while the disk reads
    //   throws  kUnavailable (naming the directory)
    virtual void Read(size_t at, size_t bytes, void* out) const = 0;
    // These bytes are read soon.
    virtual void Prefetch(size_t at, size_t bytes) const noexcept = 0;

   protected:
    void SetState(State state) noexcept { state_.store(state, std::memory_order_release); }

   private:
    std::atomic<State> state_{State::kWriting};
  };

  virtual ~RowDisk() = default;
  // Begins to write a block, which nobody changes from now on.
  //   returns  null: so much is on its way that this has to wait
  //   throws   std::bad_alloc
  virtual std::shared_ptr<Extent> Write(const Block& block) = 0;
  // Waits until nothing is on its way.
  //   blocks   at most the patience
  virtual void Flush(std::chrono::nanoseconds patience) = 0;
  // Why the last write has failed; empty where it has not.
  virtual std::string failure() const = 0;
  virtual uint64_t bytes() const noexcept = 0;  // that extents have
  // Fewer bytes are not worth a write.
  virtual size_t page_bytes_min() const noexcept = 0;
};

}  // namespace tkv
