// Spreads a range over cores.

#pragma once

#include <cstddef>
#include <functional>

namespace tkv {

// Threads for an operation that may use `wanted` (0: all usable cores); 1 in a child of fork(),
// where the pool's threads do not exist.
int ThreadsFor(int wanted);

// Calls body(slot, begin, end) for parts of [0, count) on up to `threads` threads, the calling one
// among them, and returns when all are done.  A slot is below `threads` and no two calls at one
// time have the same.  The same range is spread in the same way again, but for what an idle thread
// takes from a busy one.
//   throws  what body throws
void ParallelFor(int threads, size_t count, size_t grain,
                 const std::function<void(size_t slot, size_t begin, size_t end)>& body);

}  // namespace tkv
