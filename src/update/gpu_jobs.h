// Translates jobs for a GPU: the elementwise code of a job, and its entry in the table of a launch.
//
// Pure: launches nothing.  Jobs of equal code can share a launch.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/launch_table.h"
#include "kernels/elementwise.h"
#include "update/tile_driver.h"

namespace tkv {

struct GpuCode {
  kernels::Elementwise elementwise;
  std::vector<uint16_t> scalars;  // numbers in the program, by numbers in the code
};

// Returns true if a kernel can run the program: it has no reduce_sum and no normal.
bool HasKernel(const Program& program);

// Returns code with the element operations of RunJobs, in the same order.  The CPU may run a fused
// or shorter form of the program instead, which gives the same bits.
//   job     of an arithmetic dtype, without a base and codings, which only servers have
//   throws  kUnimplemented (the program has reduce_sum, which needs a pass over all elements first,
//           or normal, whose logarithms and cosines are those of scalar_math.h)
GpuCode GpuCodeOf(const TileJob& job);

// Returns the scalars of the code, each rounded to the compute type once.
//   scalars  all scalars of the program, from EvaluateScalars
//   throws   kInvalidArgument (an integer type cannot hold a scalar that meets an array)
kernels::cuda::Scalars GpuScalarsOf(const GpuCode& code, std::span<const double> scalars);

// Returns the job's entry in a launch of its code.
kernels::cuda::Entry GpuEntryOf(const TileJob& job, kernels::cuda::Scalars scalars);

}  // namespace tkv
