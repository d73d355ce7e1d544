// Reads the fuzzer's bytes one after another, and zeros after their end.

#pragma once

#include <cstddef>
#include <cstdint>

namespace tkv::test {

struct Reader {
  const uint8_t* data;
  size_t size;
  uint8_t Next() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
};

}  // namespace tkv::test
