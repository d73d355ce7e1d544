// The bytes that a fuzzer gives, one after the other, and zeros behind them.

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
