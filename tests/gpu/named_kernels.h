// Kernels that tests, and the table of registers in docs/gpu.md, look at.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tkv/program.h"
#include "update/gpu_jobs.h"

namespace tkv::test {

// What decides the code of a job, beside its program.
struct JobForm {
  DType dtype = DType::kF32;
  size_t sources = 1;
  bool has_master = false;
  std::vector<DType> outputs;
};

//   program  null: the sum is assigned
GpuCode CodeFor(const Program* program, const JobForm& form);

// A program with every operation of arrays that the dtype has.
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
