// Sizes in whole units.

#pragma once

#include <cstddef>

namespace tkv {

inline constexpr size_t kPage = 4096;

// Returns the smallest multiple of `unit` that is at least `bytes`.
constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace tkv
