// Elementwise code: what one pass over the arrays of a key does to each element.
//
// Straight-line code in which each array is assigned once, between loads and stores.  The instructions
// are those of an update program, which the evaluator runs tile by tile; cuda/ptx.h writes the whole
// as a kernel.

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
  // A draw of normal numbers, of which `op` says nothing; its operands are two scalars, the
  // seed and the count.
  bool is_draw = false;
  uint16_t draw = 0;  // its number in the program
  bool operator==(const Instruction&) const = default;
};

// Arrays are numbered: 0 is the sum of the sources, then the loads, then the results of the
// instructions.  Pointers are numbered: the sources, then those that loads and stores name; what is
// loaded and stored through one pointer is updated in place.  All loads come before all stores.
struct Elementwise {
  // More sources than one kernel names are read in a loop.
  static constexpr size_t kSourcesMax = 8;

  struct Load {
    DType dtype = DType::kF32;  // `compute`, or a 16-bit float, which is widened
    uint16_t pointer = 0;
    bool operator==(const Load&) const = default;
  };
  struct Store {
    uint16_t array = 0;
    DType through = DType::kF32;  // rounds to this type first
    DType dtype = DType::kF32;    // then to this one, which is stored
    uint16_t pointer = 0;
    bool operator==(const Store&) const = default;
  };

  DType compute = DType::kF32;
  DType source_dtype = DType::kF32;  // as that of a load
  uint16_t source_count = 0;         // added from the left; 0: array 0 is not used
  bool has_more_sources = false;     // whose number only the launch knows; they come last
  uint16_t pointer_count = 0;
  uint16_t scalar_count = 0;  // of the compute type
  std::vector<Load> loads;
  std::vector<Instruction> instructions;  // no draws
  std::vector<Store> stores;

  bool operator==(const Elementwise&) const = default;
};

}  // namespace tkv::kernels
