// Kernels for tests and for the table of registers in docs/gpu.md.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tkv/program.h"
#include "update/gpu_jobs.h"

namespace tkv::test {

// The properties of a job that determine its GPU code, besides its program.
struct JobForm {
  DType dtype = DType::kF32;
  size_t sources = 1;
  bool has_master = false;
  std::vector<DType> outputs;
};

// Returns the GPU code of a job.
//   program  null: the sum is assigned
GpuCode CodeFor(const Program* program, const JobForm& form);

// Returns a program with every array operation that the dtype supports.
Program EveryOperation(DType dtype);

inline constexpr DType kArithmeticTypes[] = {DType::kF32,  DType::kF64, DType::kF16,
                                             DType::kBF16, DType::kI8,  DType::kU8,
                                             DType::kI16,  DType::kI32, DType::kI64};

struct NamedKernel {
  std::string name;
  GpuCode code;
  bool is_in_table = false;
};

std::vector<NamedKernel> NamedKernels();

}  // namespace tkv::test
