// When and how often a row was brought.

#pragma once

#include <cstdint>

namespace tkv {

struct RowNote {
  uint64_t version = 0;  // that a push last brought it to
  uint64_t count = 0;    // of versions that it was brought in
  bool operator==(const RowNote&) const = default;
};

}  // namespace tkv
