// Prefetches memory that is accessed soon.

#pragma once

#include <algorithm>
#include <cstddef>

namespace tkv {

inline constexpr size_t kPrefetchedRows = 16;  // rows that are prefetched at a time

// Prefetches bytes that are read soon.  A long record is prefetched only at its beginning; the
// hardware prefetches the rest.
inline void PrefetchBytes(const void* at, size_t bytes) noexcept {
  constexpr size_t kLine = 64, kLinesMax = 16;
  const auto* const first = static_cast<const char*>(at);
  for (size_t i = 0; i < std::min(bytes, kLinesMax * kLine); i += kLine) {
    __builtin_prefetch(first + i);
  }
}

}  // namespace tkv
