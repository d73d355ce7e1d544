// Memory of row tables: aligned, shared by copies of a table, freed with the last one.

#pragma once

#include <sys/mman.h>

#include <new>

#include "base/buffer.h"

namespace tkv {

// Rows are found at random places: a huge page saves the walk to each.
inline constexpr size_t kHugePage = size_t{2} << 20;

//   throws  std::bad_alloc
inline Block NewRowMemory(size_t bytes) {
  const bool is_huge = bytes >= kHugePage && bytes % kHugePage == 0;
  const std::align_val_t alignment{is_huge ? kHugePage : size_t{64}};
  auto* const data = static_cast<std::byte*>(::operator new(bytes, alignment));
  // Where the system has none, small ones do.
  if (is_huge) static_cast<void>(madvise(data, bytes, MADV_HUGEPAGE));
  return {data, bytes,
          std::shared_ptr<void>(data, [alignment](void* p) { ::operator delete(p, alignment); })};
}

}  // namespace tkv
