// Chooses the fused kernel for a program.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "update/program_body.h"

namespace tkv {

// A fused kernel, and the numbers of the program's scalars in the order of the kernel.
struct FusedKernel {
  kernels::Fused kind = kernels::Fused::kNone;
  std::vector<uint16_t> scalars;
};

// Returns the kernel that computes what the program computes, bit for bit; kNone if there is none.
// Names do not matter: the program has the instructions on arrays, the states and the stores of a
// built-in optimizer.  Its scalars may be computed in another way, for example by a schedule.
FusedKernel FusedFor(const ProgramBody& body);

}  // namespace tkv
