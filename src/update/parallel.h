// Runs a function over a range on several cores.

#pragma once

#include <cstddef>
#include <functional>

namespace tkv {

// Returns the number of threads for an operation that may use `wanted` (0: all usable cores).
// Returns 1 in a child of fork(), which lacks the pool's threads.
int ThreadsFor(int wanted);

// Calls body(slot, begin, end) for parts of [0, count) on up to `threads` threads, including the
// calling one.  Returns when all parts are done.  A slot is below `threads`, and concurrent calls
// have different slots.  Equal ranges are divided equally, except for parts that an idle thread
// takes from a busy one.
//   throws  the exception of `body`
void ParallelFor(int threads, size_t count, size_t grain,
                 const std::function<void(size_t slot, size_t begin, size_t end)>& body);

}  // namespace tkv
