// Copies between any host memory and a device through pinned chunks.  Several chunks are copied at
// the same time.

#pragma once

#include <array>
#include <functional>
#include <memory>

#include "device/driver.h"
#include "device/event.h"
#include "device/memory.h"
#include "device/patient_mutex.h"

namespace tkv {

class Device;

// The chunks for one direction, allocated at their first use.  Thread-safe: one copy at a time.
class Staging final {
 public:
  explicit Staging(Device* device) : device_(*device) {}

  // Copies after all work that the stream has received, and records `done` behind the copy.  The
  // source has been read when the call returns; the target may still be written.
  //   blocks  for the previous copy, and for chunks, at most kHazardPatience for each
  //   throws  kUnavailable, kResourceExhausted, kInternal, kDeadlineExceeded, what the interrupt
  //           throws; then nothing was copied, or the device is lost
  void CopyToDevice(const void* source, cuda::Address target, size_t bytes, Stream* stream,
                    Event* done);
  // The same from the device; the target has been written when the call returns.  A target that is
  // not longer than all chunks together is written as a whole or not at all.
  //   throws  the same; of a longer target part may be written then, and the device is lost
  void CopyToHost(cuda::Address source, void* target, size_t bytes, Stream* stream, Event* done);

 private:
  static constexpr size_t kChunkBytes = size_t{2} << 20;
  static constexpr size_t kChunks = 4;

  struct Chunk {
    KeptBlock block;             // pinned; empty before the first use of the chunk
    std::unique_ptr<Event> use;  // the copy that may still use it

    void* data() const {
      return reinterpret_cast<void*>(block.mapped().address);  // NOLINT(performance-no-int-to-ptr)
    }
  };

  static size_t PiecesOf(size_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }
  Chunk& OfPiece(size_t piece) { return chunks_[(first_ + piece) % kChunks]; }
  void Prepare(size_t pieces);

  Device& device_;
  PatientMutex mutex_;
  std::array<Chunk, kChunks> chunks_;
  size_t first_ = 0;  // first chunk of the next copy
};

}  // namespace tkv
