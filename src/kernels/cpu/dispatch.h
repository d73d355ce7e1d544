// Chooses the instruction set whose code a kernel runs.
//
// Highway compiles the kernels once for each instruction set.  Its runtime library could choose
// among them, but it calibrates a clock for four milliseconds in each process that loads it.  This
// is more time than a program of this library needs until its first line.  So the choice is made
// here, from the compiler runtime's data on the processor and its operating system.

#pragma once

#include <cstdint>
#include <vector>

#include "hwy/targets.h"

namespace tkv::kernels {

// Returns the instruction sets that were built and that this processor can run, best first.  On
// processors other than x86, only those that the compiler could assume are returned.
std::vector<int64_t> HostTargets();

// Holds the usable instruction sets; the best of them runs.  A test may set it to one of
// HostTargets().
hwy::ChosenTarget& ChosenTargets();

}  // namespace tkv::kernels

// TKV_EXPORT(F) makes a table of F by instruction set; TKV_DISPATCH(F)(...) calls the chosen one.
// hwy::ChosenTarget::GetIndex gives the place of an instruction set; the first place is never used.
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
#define TKV_EXPORT(F) static_assert(true)
#define TKV_DISPATCH(F) HWY_STATIC_DISPATCH(F)
#else
#define TKV_EXPORT(F)                                               \
  static constexpr decltype(&HWY_STATIC_DISPATCH(F)) F##Table[] = { \
      nullptr, HWY_CHOOSE_TARGET_LIST(F), HWY_CHOOSE_FALLBACK(F)};  \
  static_assert(std::size(F##Table) == HWY_MAX_DYNAMIC_TARGETS + 2)
#define TKV_DISPATCH(F) (*F##Table[ChosenTargets().GetIndex()])
#endif
