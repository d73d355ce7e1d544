// Makes the state that an update program keeps for a value: its states, and a master of a 16-bit
// value.

#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "tkv/dtype.h"
#include "tkv/program.h"

namespace tkv {

template <typename Memory>
struct UpdateState {
  std::vector<Memory> states;  // arrays of zeros, then scalars with the program's initial values
  Memory master{};             // the value in its compute type; empty if there is no master
};

// Makes the state of a value before its first update.  Arrays and the master have the value's
// elements in its compute type; each scalar is one float64.
//   have      number of states that already exist; only the others are made
//   allocate  makes an array or a scalar; returns its Memory and the address of its first byte
template <typename Memory, typename Allocate>
UpdateState<Memory> PrepareState(const Program& program, size_t have, bool needs_master,
                                 DType dtype, const void* value, size_t count, Allocate allocate) {
  UpdateState<Memory> made;
  const DType compute = ComputeType(dtype);
  const size_t arrays = program.states().size();
  const auto& scalars = program.scalar_states();
  for (size_t i = have; i < arrays + scalars.size(); ++i) {
    auto [memory, data] = allocate(i < arrays);
    if (i >= arrays) {
      std::memcpy(data, &scalars[i - arrays].initial, sizeof(double));
    } else if (count > 0) {
      std::memset(data, 0, count * ItemSize(compute));
    }
    made.states.push_back(std::move(memory));
  }
  if (needs_master && compute != dtype) {
    auto [memory, data] = allocate(true);
    kernels::Convert(dtype, value, compute, data, count);
    made.master = std::move(memory);
  }
  return made;
}

}  // namespace tkv
