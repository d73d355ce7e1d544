#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/targets.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace tkv::kernels {
namespace HWY_NAMESPACE {
int64_t ThisTarget() { return HWY_TARGET; }
}  // namespace HWY_NAMESPACE
}  // namespace tkv::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tkv::kernels {

TKV_EXPORT(ThisTarget);

std::string ActiveTarget() { return hwy::TargetName(TKV_DISPATCH(ThisTarget)()); }

std::vector<std::string> BuiltTargets() {
  std::vector<std::string> names;
  for (int64_t bits = HWY_TARGETS; bits != 0; bits &= bits - 1)
    names.emplace_back(hwy::TargetName(bits & -bits));
  return names;
}

}  // namespace tkv::kernels
#endif
