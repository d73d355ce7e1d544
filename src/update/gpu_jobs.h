// Jobs as a GPU runs them: the elementwise code of each, and its entry in the table of a launch.
//
// Pure: nothing is launched here.  Jobs of equal code can share a launch.

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
  std::vector<uint16_t> scalars;  // their numbers in the program, by those in the code
};

// Whether a kernel runs the program: it has no reduce_sum and no normal.
bool HasKernel(const Program& program);

// What RunJobs does to each element, in the same order of operations; the program as it is, also where
// the CPU has a fused or a shorter form, which have the same bits.
//   job     of an arithmetic dtype, without a base and codings, which only servers have
//   throws  kUnimplemented  the program has reduce_sum, which needs a pass over all elements first, or
//                           normal, whose logarithms and cosines are those of scalar_math.h
GpuCode GpuCodeOf(const TileJob& job);

// Those that the code has, each rounded to the compute type once.
//   scalars  all of the program, as EvaluateScalars has them
//   throws   kInvalidArgument  an integer type cannot hold one that meets an array
kernels::cuda::Scalars GpuScalarsOf(const GpuCode& code, std::span<const double> scalars);

// The job's part of a launch of that code.
kernels::cuda::Entry GpuEntryOf(const TileJob& job, kernels::cuda::Scalars scalars);

}  // namespace tkv
