// The oracle: computes the result of each kernel in the plainest way.  Slow; for tests only.

#pragma once

#include "kernels/encode.h"
#include "kernels/kernels.h"

namespace tkv::kernels::reference {

void Sum(DType dtype, std::span<const void* const> sources, void* target, size_t count);
double ReduceSum(DType dtype, const void* source, size_t count);
void Convert(DType from, const void* source, DType to, void* target, size_t count);
void UpdateFused(Fused kind, DType dtype, std::span<const double> scalars, const void* grad,
                 void* value, void* const* states, size_t count);

size_t Encode(const Coding& coding, const float* gradient, float* residual, void* target,
              size_t count);
void Decode(const Coding& coding, const void* source, float* target, size_t count, Into into);

}  // namespace tkv::kernels::reference
