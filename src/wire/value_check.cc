#include "wire/value_check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tkv {

#ifdef TKV_HAS_AVX2
void AddByAvx2(XXH3_state_t* state, const void* data, size_t bytes);
#endif

struct ValueCheck::State {
  XXH3_state_t hash;
};

ValueCheck::ValueCheck() : state_(std::make_unique<State>()) { Restart(); }
ValueCheck::~ValueCheck() = default;
ValueCheck::ValueCheck(ValueCheck&&) noexcept = default;
ValueCheck& ValueCheck::operator=(ValueCheck&&) noexcept = default;

void ValueCheck::Restart() { XXH3_64bits_reset(&state_->hash); }
void ValueCheck::Add(const void* data, size_t bytes) {
#ifdef TKV_HAS_AVX2
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return AddByAvx2(&state_->hash, data, bytes);
#endif
  XXH3_64bits_update(&state_->hash, data, bytes);
}
uint64_t ValueCheck::value() const { return XXH3_64bits_digest(&state_->hash); }

}  // namespace tkv
