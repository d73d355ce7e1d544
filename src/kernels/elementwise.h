// Elementwise code: the operations of one pass over the arrays of a key on each element.
//
// Elementwise code is straight-line code between loads and stores, in which each array is assigned
// once.  Its instructions are those of an update program.  The evaluator runs them tile by tile;
// cuda/ptx.h compiles the whole code to a kernel.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace tkv::kernels {

// Refers to an array or to a scalar by its number.
struct Operand {
  bool is_scalar = false;
  uint16_t index = 0;
  bool operator==(const Operand&) const = default;
};

struct Instruction {
  Op op = Op::kAdd;
  Operand operands[3];
  // True for a draw of normal numbers; then `op` has no meaning, and the operands are two scalars:
  // the seed and the count.
  bool is_draw = false;
  uint16_t draw = 0;  // number of the draw in the program
  bool operator==(const Instruction&) const = default;
};

// Code for each element of a key.
//
// Arrays have numbers: 0 is the sum of the sources, then come the loads, then the results of the
// instructions.  Pointers have numbers: first the sources, then those of loads and stores.  A load
// and a store through one pointer update an array in place.  All loads run before all stores.
struct Elementwise {
  // A kernel names at most this many sources, and reads further ones in a loop.
  static constexpr size_t kSourcesMax = 8;

  struct Load {
    DType dtype = DType::kF32;  // `compute`, or a 16-bit float, which is widened
    uint16_t pointer = 0;
    bool operator==(const Load&) const = default;
  };
  struct Store {
    uint16_t array = 0;
    DType through = DType::kF32;  // the value is first rounded to this type
    DType dtype = DType::kF32;    // then to this one, which is stored in memory
    uint16_t pointer = 0;
    bool operator==(const Store&) const = default;
  };

  DType compute = DType::kF32;
  DType source_dtype = DType::kF32;  // as that of a load
  uint16_t source_count = 0;         // added from left to right; 0: array 0 is not used
  bool has_more_sources = false;     // added last; each launch has its own number of them
  uint16_t pointer_count = 0;
  uint16_t scalar_count = 0;  // of the compute type
  std::vector<Load> loads;
  std::vector<Instruction> instructions;  // no draws
  std::vector<Store> stores;

  bool operator==(const Elementwise&) const = default;
};

}  // namespace tkv::kernels
