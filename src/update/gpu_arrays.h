// Array arithmetic on a device, in one launch each.  The arrays are contiguous, of one shape, and all on
// one device; what reads and writes them before comes before.
//
//   throws  kUnimplemented, kResourceExhausted, kUnavailable, kInternal, kDeadlineExceeded; then nothing
//           has changed

#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/launch_table.h"
#include "kernels/kernels.h"
#include "tkv/ndarray.h"

namespace tkv {

// target = op(operands), of one dtype.  An operand whose bit is set in `mask` is the scalar, of the
// compute type; an array may be the target, or overlap it.
void ApplyOnDevice(kernels::Op op, kernels::ScalarMask mask, std::span<const std::byte> scalar,
                   std::span<const NDArray> arrays, const NDArray& target);

// Any code over arrays of one device, whose addresses the entry has.
void LaunchOnDevice(const kernels::Elementwise& code, const kernels::cuda::Entry& entry,
                    std::span<const NDArray> reads, std::span<const NDArray> writes);

// Whether two arrays have bytes in common.
bool OverlapOnDevice(const NDArray& a, const NDArray& b);

// Every element becomes the same bytes.
void FillOnDevice(const NDArray& target, const std::byte* element);

// Between float dtypes of more than 8 bits, rounded once.
void ConvertOnDevice(const NDArray& source, const NDArray& target);

}  // namespace tkv
