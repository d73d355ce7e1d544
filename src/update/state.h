// What an update program keeps beside a value: its states, and a master of a 16-bit value.

#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "tkv/dtype.h"

namespace tkv {

template <typename Memory>
struct UpdateState {
  std::vector<Memory> states;  // zero
  Memory master{};             // the value in its compute type; empty where the program needs none
};

// The state of a value before its first update, each part of it of the value's elements in its
// compute type.
//   allocate  makes a part: Memory, and the address of its first byte
template <typename Memory, typename Allocate>
UpdateState<Memory> PrepareState(size_t state_count, bool needs_master, DType dtype,
                                 const void* value, size_t count, Allocate allocate) {
  UpdateState<Memory> made;
  const DType compute = ComputeType(dtype);
  for (size_t i = 0; i < state_count; ++i) {
    auto [memory, data] = allocate();
    if (count > 0) std::memset(data, 0, count * ItemSize(compute));
    made.states.push_back(std::move(memory));
  }
  if (needs_master && compute != dtype) {
    auto [memory, data] = allocate();
    kernels::Convert(dtype, value, compute, data, count);
    made.master = std::move(memory);
  }
  return made;
}

}  // namespace tkv
