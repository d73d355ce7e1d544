// Translates elementwise code to the text of a GPU kernel, in PTX, which the driver compiles.
//
// The kernel computes the same bits as the CPU, except for the payload and the sign of a NaN.
// Every operation rounds by itself (.rn); none is contracted (fma) or flushes denormals (.ftz).  A
// minimum is a comparison and a selection.  The text uses 18 opcodes of PTX 6.3, which every driver
// since CUDA 10 and every GPU since sm_70 accepts.
//
// Pure functions: no driver, no GPU.

#pragma once

#include <string>

#include "kernels/elementwise.h"

namespace tkv::kernels::cuda {

inline constexpr const char* kKernelName = "tkv_elementwise";

// The place of the kernel's launch table.  kParameter: the table begins the kernel's one parameter,
// an array of kParameterBytesMax bytes.  kMemory: the parameter is the address of the table.
enum class TablePlace : uint8_t { kParameter, kMemory };

// Returns the text of the kernel.  Launches have one-dimensional blocks of kBlockThreads threads, a
// grid of any size, and no shared memory.  A store of a launch may overlap a load only if both
// access the same element at the same address.
std::string WritePtx(const Elementwise& code, TablePlace place);

}  // namespace tkv::kernels::cuda
