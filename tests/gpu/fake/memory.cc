// Memory of the fake driver.  A test may make the program's allocations fail, and NVIDIA's driver
// has its own memory, too.

#include <cstdlib>
#include <new>

void* operator new(size_t bytes) {
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
