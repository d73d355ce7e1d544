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

// Returns the bytes of all pieces.
inline size_t BytesOf(const std::vector<iovec>& pieces) {
  size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

// A position in pieces of memory, which moves from their beginning to their end.
class PieceCursor {
 public:
  // The pieces have to outlive the cursor.
  explicit PieceCursor(const std::vector<iovec>& pieces) : pieces_(pieces) {}

  bool is_at_end() const { return piece_ == pieces_.size(); }
  // Return the memory from the position to the end of its piece; call them only before the end.
  std::byte* data() const { return static_cast<std::byte*>(pieces_[piece_].iov_base) + offset_; }
  size_t bytes() const { return pieces_[piece_].iov_len - offset_; }
  // Moves by that many bytes, at most to the end of the piece.
  void Advance(size_t bytes) {
    offset_ += bytes;
    if (offset_ < pieces_[piece_].iov_len) return;
    ++piece_;
    offset_ = 0;
  }

 private:
  const std::vector<iovec>& pieces_;
  size_t piece_ = 0, offset_ = 0;
};

// Returns true if an address is within a range of memory.
inline bool IsInside(const std::byte* at, const void* data, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return at >= begin && at < begin + bytes;
}

}  // namespace tkv
