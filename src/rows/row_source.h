// The memory of a batch of rows: consecutive rows, or a list of pointers.  Borrows all of it.

#pragma once

#include <cstddef>

namespace tkv {

struct RowSource {
  const std::byte* base = nullptr;
  size_t row_bytes = 0;
  const void* const* list = nullptr;  // null: row i is at base + i * row_bytes

  const void* at(size_t i) const { return list != nullptr ? list[i] : base + i * row_bytes; }
  RowSource From(size_t first) const {
    if (list != nullptr) return {nullptr, row_bytes, list + first};
    return {base + first * row_bytes, row_bytes, nullptr};
  }
};

}  // namespace tkv
