// Memory ends at the n-th allocation of this thread from now on.  Replaces operator new of a test program: one
// file of it includes this.

#pragma once

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>

namespace tkv::test {

inline thread_local int allocations_left = -1;  // -1: it does not end

inline void* Allocate(size_t bytes, size_t alignment) {
  if (allocations_left == 0) {
    allocations_left = -1;  // once, so that the error itself can be told
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

struct Attempt {
  bool succeeded = false;
  bool ran_out = false;  // also where the call went on without the memory
};

// Calls f, which has memory for so many allocations and lacks it once.
template <typename F>
Attempt WithMemoryFor(int allocations, F f) {
  Attempt attempt;
  allocations_left = allocations;
  try {
    f();
    attempt.succeeded = true;
  } catch (const std::exception&) {  // bad_alloc, or what a verb makes of it
  }
  attempt.ran_out = allocations_left < 0;
  allocations_left = -1;
  return attempt;
}

}  // namespace tkv::test

// Not inlined: the compiler would take their parts for pairs that do not belong together.
[[gnu::noinline]] void* operator new(size_t bytes) {
  return tkv::test::Allocate(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return tkv::test::Allocate(bytes, static_cast<size_t>(alignment));
}
// For temporary buffers of algorithms, which do with less.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return tkv::test::Allocate(bytes, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
