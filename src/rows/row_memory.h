// Allocates memory for row tables: aligned, shared by copies of a table, freed with the last copy.

#pragma once

#include <sys/mman.h>

#include <memory>
#include <new>

#include "base/buffer.h"
#include "base/format.h"

namespace tkv {

// Rows are accessed at random: a huge page saves a page-table walk for each.
inline constexpr size_t kHugePage = size_t{2} << 20;

// Allocates a block, in huge pages if the size is a multiple of them.
//   throws  std::bad_alloc
inline Block NewRowMemory(size_t bytes) {
  const bool is_huge = bytes >= kHugePage && bytes % kHugePage == 0;
  const std::align_val_t alignment{is_huge ? kHugePage : size_t{64}};
  auto* const data = static_cast<std::byte*>(::operator new(bytes, alignment));
  // If the system has no huge pages, small ones are used.
  if (is_huge) static_cast<void>(madvise(data, bytes, MADV_HUGEPAGE));
  return {data, bytes,
          std::shared_ptr<void>(data, [alignment](void* p) { ::operator delete(p, alignment); })};
}

// Calls f and returns its result.
//   throws  kResourceExhausted in place of std::bad_alloc
template <typename F>
auto WithRowMemory(F f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    throw Fail(Code::kResourceExhausted, "no memory for rows");
  }
}

}  // namespace tkv
