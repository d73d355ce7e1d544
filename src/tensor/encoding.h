// The encodings of pushed values in messages.

#pragma once

#include <cstdint>

namespace tkv {

enum class Encoding : uint8_t {  // wire value: never renumber
  kDense = 0,
  kF16 = 1,
  kBf16 = 2,
  kInt8 = 3,
  k2Bit = 4,
  k1Bit = 5,
  kRuns = 6,
  kTopK = 7,
  kRows = 8,
  kF32 = 9,  // for 16-bit keys: a worker's sum of several values
};

// Returns true if every run of kEncodedElements elements has its own bytes.  Then a part that
// begins at a multiple of kEncodedElements can be decoded by itself.
constexpr bool IsTiled(Encoding encoding) {
  return encoding <= Encoding::k1Bit || encoding == Encoding::kF32;
}
inline constexpr uint32_t kEncodedElements = 1024;

}  // namespace tkv
