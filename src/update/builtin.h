// The optimizers that come with the library, as programs.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "tkv/program.h"

namespace tkv {

//   throws  kNotFound  naming those there are
Program BuiltinProgram(std::string_view name);

// The fused kernel for a program with this text and these states, and the names of its scalars, or
// none.  How the scalars come about does not matter: they may be params, or computed.
struct FusedKernel {
  kernels::Fused kind = kernels::Fused::kNone;
  std::vector<std::string_view> scalars;
};
FusedKernel FusedFor(std::string_view text, const std::vector<std::string>& states);

}  // namespace tkv
