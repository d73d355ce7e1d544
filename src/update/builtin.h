// Provides the built-in optimizers, as programs.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "tkv/program.h"

namespace tkv {

// Returns the program of a built-in optimizer.
//   throws  kNotFound (the error lists the built-in optimizers)
Program BuiltinProgram(std::string_view name);

// A fused kernel and the names of its scalars.  FusedFor returns the kernel for a program with this
// text and these states, or kNone.  Scalars of the program may be params or computed.
struct FusedKernel {
  kernels::Fused kind = kernels::Fused::kNone;
  std::vector<std::string_view> scalars;
};
FusedKernel FusedFor(std::string_view text, const std::vector<std::string>& states);

}  // namespace tkv
