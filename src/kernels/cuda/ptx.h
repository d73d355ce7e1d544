// Elementwise code as the text of a GPU kernel, in PTX, which the driver compiles.
//
// The kernel has the bits of the CPU, but for the payload and the sign of a NaN: every operation
// rounds by itself (.rn), none is contracted (fma) or flushes denormals (.ftz), and a minimum is a
// comparison and a selection.  18 opcodes are used, of PTX 6.3, which every driver since CUDA 10 and
// every GPU since sm_70 takes.
//
// Pure functions: no driver, no GPU.

#pragma once

#include <string>

#include "kernels/elementwise.h"

namespace tkv::kernels::cuda {

inline constexpr const char* kKernelName = "tkv_elementwise";

// Where the kernel finds its launch table: at the beginning of its one parameter, an array of
// kParameterBytesMax bytes, or in memory, whose address is the parameter.
enum class TablePlace : uint8_t { kParameter, kMemory };

// The kernel takes one-dimensional blocks of kBlockThreads threads, in a grid of any size; no shared
// memory.  Stores of a launch must not meet its loads but element by element, at the same address.
std::string WritePtx(const Elementwise& code, TablePlace place);

}  // namespace tkv::kernels::cuda
