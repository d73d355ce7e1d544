// The interval between two automatic snapshots, as users write it.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tkv {

// A schedule counts rounds or seconds; the other number is 0.
struct SaveInterval {
  uint64_t rounds = 0;
  uint64_t seconds = 0;
};

// Reads "100" (rounds) or "30s"; returns nothing for another text.
std::optional<SaveInterval> SaveIntervalOf(std::string_view text);

}  // namespace tkv
