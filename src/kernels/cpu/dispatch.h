// Which instruction set's code a kernel runs.
//
// Highway compiles the kernels once for each instruction set.  Its runtime library would choose
// among them, but calibrates a clock for four milliseconds in each process that loads it: more than
// all else that a program of this library does until its first line.  So the choice is made here,
// by what the compiler's runtime knows of the processor and of its operating system.

#pragma once

#include <cstdint>
#include <vector>

#include "hwy/targets.h"

namespace tkv::kernels {

// Of those that the kernels were built for, what this processor can run; the best first.  On
// processors other than x86 it is what the compiler was told that all of them have.
std::vector<int64_t> HostTargets();

// The best of these runs.  A test may update it with one of HostTargets().
hwy::ChosenTarget& ChosenTargets();

}  // namespace tkv::kernels

// TKV_EXPORT(F); makes the table of F by instruction set, TKV_DISPATCH(F)(...) calls the chosen
// one. The place of an instruction set is that of hwy::ChosenTarget::GetIndex; the first is never
// used.
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
