#include "device/staging.h"

#include <algorithm>
#include <cstring>

#include "device/device.h"

namespace tkv {

// Allocates the chunks that a copy of `pieces` needs.
void Staging::Prepare(size_t pieces) {
  for (size_t i = 0; i < std::min(pieces, kChunks); ++i) {
    Chunk& chunk = OfPiece(i);
    if (chunk.block) continue;
    auto use = std::make_unique<Event>(&device_);
    use->Abandon();  // no copy uses the chunk yet
    chunk.block = device_.pinned_blocks().Take(kChunkBytes);
    chunk.use = std::move(use);
  }
}

void Staging::CopyToDevice(const void* source, cuda::Address target, size_t bytes, Stream* stream,
                           Event* done) {
  const PatientMutex::Lock lock(&mutex_, "copy to a GPU");
  const size_t pieces = PiecesOf(bytes);
  Prepare(pieces);
  OfPiece(0).use->Wait(kHazardPatience);
  for (size_t i = 0; i < pieces; ++i) {
    Chunk& chunk = OfPiece(i);
    const size_t at = i * kChunkBytes;
    const size_t size = std::min(kChunkBytes, bytes - at);
    // From here on the target is partly written, so a user's interrupt must not end the copy.
    if (!chunk.use->EndsWithin(kHazardPatience, {})) {
      device_.Lose("copy to the device", cuda::Result::kLaunchTimeout);
    }
    device_.CheckUsable();
    std::memcpy(chunk.data(), static_cast<const std::byte*>(source) + at, size);
    const auto result =
        device_.Call(device_.driver().CopyToDevice, target + at,
                     static_cast<const void*>(chunk.data()), size, stream->handle());
    if (result != cuda::Result::kSuccess && i > 0) device_.Lose("copy to the device", result);
    device_.Check(result, "copy to the device");
    chunk.use->Record(stream);
  }
  first_ += pieces;
  done->Record(stream);
}

void Staging::CopyToHost(cuda::Address source, void* target, size_t bytes, Stream* stream,
                         Event* done) {
  const PatientMutex::Lock lock(&mutex_, "copy from a GPU");
  const size_t pieces = PiecesOf(bytes);
  Prepare(pieces);
  size_t asked = 0;
  const auto ask = [&] {
    Chunk& chunk = OfPiece(asked);
    const size_t at = asked * kChunkBytes;
    chunk.use->Wait(kHazardPatience);
    device_.Do("copy to the host", device_.driver().CopyToHost, chunk.data(), source + at,
               std::min(kChunkBytes, bytes - at), stream->handle());
    chunk.use->Record(stream);
    ++asked;
  };
  try {
    while (asked < std::min(pieces, kChunks)) ask();
    for (size_t i = 0; i < asked; ++i) OfPiece(i).use->Wait(kHazardPatience);
    for (size_t i = 0; i < pieces; ++i) {
      // From here on the target is partly written, so a user's interrupt must not end the copy.
      if (i >= kChunks) {
        if (!OfPiece(i).use->EndsWithin(kHazardPatience, {})) {
          device_.Lose("copy to the host", cuda::Result::kLaunchTimeout);
        }
        device_.CheckUsable();
      }
      const size_t at = i * kChunkBytes;
      std::memcpy(static_cast<std::byte*>(target) + at, OfPiece(i).data(),
                  std::min(kChunkBytes, bytes - at));
      if (asked == pieces) continue;
      try {
        ask();
      } catch (...) {
        device_.Lose("copy to the host", cuda::Result::kLaunchFailed);
        throw;
      }
    }
  } catch (...) {
    if (asked > 0) done->Record(stream);
    throw;
  }
  first_ += pieces;
  done->Record(stream);
}

}  // namespace tkv
