// Buffers that calls need for themselves, kept for later calls.  The kernel would have to clear
// fresh memory each time.

#pragma once

#include <mutex>
#include <vector>

#include "tkv/ndarray.h"

namespace tkv {

// Returns a new array of bytes.
//   throws  kResourceExhausted
inline NDArray BytesOf(size_t count) {
  return NDArray::Empty(Shape({static_cast<int64_t>(count)}), DType::kU8);
}

// A pool of arrays.  Thread-safe.
class Scratch {
 public:
  // Returns an array of bytes.  No other call gets its memory while a handle of the array exists.
  //   throws  kResourceExhausted
  NDArray Take(size_t bytes);
  size_t kept_bytes() const;  // of all kept arrays

 private:
  // Smaller arrays are allocated afresh, which costs nothing.
  static constexpr size_t kFrom = size_t{256} << 10;
  static constexpr size_t kKeptBytesMax = size_t{128} << 20;

  size_t Kept() const;

  mutable std::mutex mutex_;
  std::vector<NDArray> kept_;  // in use or not
};

}  // namespace tkv
