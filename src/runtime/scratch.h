// Memory that calls need for themselves, kept for the next ones: fresh memory of some size costs the
// kernel's zeros each time.

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

// Thread-safe.
class Scratch {
 public:
  // So many bytes, of an array that nobody else has as long as a handle on it is there.
  //   throws  kResourceExhausted
  NDArray Take(size_t bytes);
  size_t kept_bytes() const;  // of all arrays

 private:
  static constexpr size_t kFrom = size_t{256} << 10;  // smaller ones cost nothing
  static constexpr size_t kKeptBytesMax = size_t{128} << 20;

  size_t Kept() const;

  mutable std::mutex mutex_;
  std::vector<NDArray> kept_;  // in use or not
};

}  // namespace tkv
