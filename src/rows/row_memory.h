// Memory of row tables: aligned, shared by copies of a table, freed with the last one.

#pragma once

#include <new>

#include "base/buffer.h"

namespace tkv {

inline constexpr std::align_val_t kRowAlignment{64};

//   throws  std::bad_alloc
inline Block NewRowMemory(size_t bytes) {
  auto* const data = static_cast<std::byte*>(::operator new(bytes, kRowAlignment));
  return {data, bytes,
          std::shared_ptr<void>(data, [](void* p) { ::operator delete(p, kRowAlignment); })};
}

}  // namespace tkv
