// Computes with arrays on a device, in one launch per call.  The arrays are contiguous, of one
// shape, and on one device.  A launch runs after earlier work that reads or writes the arrays.
//
//   throws  kUnimplemented, kResourceExhausted, kUnavailable, kInternal, kDeadlineExceeded; nothing
//           changed then

#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/launch_table.h"
#include "kernels/kernels.h"
#include "tkv/ndarray.h"

namespace tkv {

// Computes target = op(operands), in one dtype.  An operand whose bit is set in `mask` is the
// scalar, of the compute type.  An array may be the target or overlap it.
void ApplyOnDevice(kernels::Op op, kernels::ScalarMask mask, std::span<const std::byte> scalar,
                   std::span<const NDArray> arrays, const NDArray& target);

// Launches elementwise code over arrays of one device, whose addresses are in the entry.
void LaunchOnDevice(const kernels::Elementwise& code, const kernels::cuda::Entry& entry,
                    std::span<const NDArray> reads, std::span<const NDArray> writes);

// Returns true if two arrays have bytes in common.
bool OverlapOnDevice(const NDArray& a, const NDArray& b);

// Sets every element to the same bytes.
void FillOnDevice(const NDArray& target, const std::byte* element);

// Converts between float dtypes of more than 8 bits, rounding once.
void ConvertOnDevice(const NDArray& source, const NDArray& target);

}  // namespace tkv
