// Rows: some of a value's rows, each with its id.  A key made by InitRows keeps each row by itself, so
// that what nobody has pushed takes no memory.

#pragma once

#include <cstdint>

#include "tkv/ndarray.h"

namespace tkv {

// What rows that nobody has written read as.  Reading makes no row.
struct RowInitializer {
  enum class Kind : uint8_t { kConstant = 0, kUniform = 1, kNormal = 2 };  // wire value
  Kind kind = Kind::kConstant;
  double a = 0;  // the constant; the lower end; the mean
  double b = 0;  // the upper end; the standard deviation
  uint64_t seed = 0;
  bool operator==(const RowInitializer&) const = default;
};

// Ids are below this number, so that an int64 holds each of them.
inline constexpr uint64_t kRowsMax = uint64_t{1} << 63;

// Row i of the values is the row `ids[i]` of the key.  An id may stand there several times, in any
// order: its rows are summed.
//   shape  ids: (n,) of int64; values: (n, ...), with the key's row behind the n
struct Rows {
  NDArray ids;
  NDArray values;
};

}  // namespace tkv
