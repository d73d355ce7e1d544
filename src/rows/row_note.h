// Records when and how often a row was pushed.

#pragma once

#include <cstdint>

namespace tkv {

// Versions are counted up to 2^48.
inline constexpr int kVersionBits = 48;

struct RowNote {
  uint64_t version = 0;  // the version made by the last push of the row
  uint64_t count = 0;    // number of versions with a push of the row
  bool operator==(const RowNote&) const = default;
};

}  // namespace tkv
