#include "kernels/cpu/dispatch.h"

namespace tkv::kernels {
namespace {

//   source  hwy/ops/set_macros-inl.h, HWY_TARGET_STR: the features that each target needs
int64_t TargetsOfThisProcessor() {
  int64_t targets = HWY_STATIC_TARGET;
#if HWY_ARCH_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("ssse3")) return targets;
  targets |= HWY_SSSE3;
  const bool has_sse4 = __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
                        __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes");
  if (!has_sse4) return targets;
  targets |= HWY_SSE4;
  const bool has_avx2 = __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
                        __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("bmi") &&
                        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  if (!has_avx2) return targets;
  targets |= HWY_AVX2;
  const bool has_avx3 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw");
  if (has_avx3) targets |= HWY_AVX3;
#endif
  return targets;
}

}  // namespace

std::vector<int64_t> HostTargets() {
  std::vector<int64_t> targets;
  for (int64_t bits = TargetsOfThisProcessor() & HWY_TARGETS; bits != 0; bits &= bits - 1) {
    targets.push_back(bits & -bits);
  }
  return targets;
}

hwy::ChosenTarget& ChosenTargets() {
  struct Chosen : hwy::ChosenTarget {
    Chosen() { Update(TargetsOfThisProcessor()); }
  };
  static Chosen chosen;
  return chosen;
}

}  // namespace tkv::kernels
