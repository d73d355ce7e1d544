// Pieces of memory that one call of the system reads or writes.

#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <vector>

namespace tkv {

// The most pieces of one call.
inline constexpr size_t kPiecesMax = 256;

// Adds a piece, and joins it with the last one if it follows in memory.
inline void AddPiece(std::vector<iovec>* pieces, const void* data, size_t bytes) {
  if (!pieces->empty()) {
    iovec& last = pieces->back();
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += bytes;
      return;
    }
  }
  pieces->push_back({const_cast<void*>(data), bytes});
}

// Returns true if an address is within a range of memory.
inline bool IsInside(const std::byte* at, const void* data, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return at >= begin && at < begin + bytes;
}

}  // namespace tkv
