// Copies between memory of the host, whatever it is, and a device: through pinned chunks, several of
// which are under way at a time.

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

// The chunks of one direction, allocated when they are first needed.  Thread-safe: one copy at a time.
class Staging final {
 public:
  explicit Staging(Device* device) : device_(*device) {}

  // Copies after all that the stream has got, and records the event behind it.  The source has been read
  // when the call returns; what is written may be under way.
  //   blocks  for the copy before, and for chunks, at most kHazardPatience for each
  //   throws  kUnavailable, kResourceExhausted, kInternal, kDeadlineExceeded, what the interrupt throws;
  //           then nothing was copied, or the device is lost
  void CopyToDevice(const void* source, cuda::Address target, size_t bytes, Stream* stream,
                    Event* done);
  // The same, but the target has been written when the call returns, as a whole or not at all where it
  // is no longer than the chunks together.
  //   throws  the same; of a longer target part may be written then, and the device is lost
  void CopyToHost(cuda::Address source, void* target, size_t bytes, Stream* stream, Event* done);

 private:
  static constexpr size_t kChunkBytes = size_t{2} << 20;
  static constexpr size_t kChunks = 4;

  struct Chunk {
    KeptBlock block;             // pinned; none before the chunk is needed
    std::unique_ptr<Event> use;  // the copy from or to it that may be under way

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
  size_t first_ = 0;  // of the next copy
};

}  // namespace tkv
