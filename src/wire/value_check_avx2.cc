// The loop of ValueCheck::Add, compiled for processors with AVX2, where it takes half the time.
// Include nothing else here: inline code compiled in this file would fail on other processors.

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tkv {

void AddByAvx2(XXH3_state_t* state, const void* data, size_t bytes);
void AddByAvx2(XXH3_state_t* state, const void* data, size_t bytes) {
  XXH3_64bits_update(state, data, bytes);
}

}  // namespace tkv
