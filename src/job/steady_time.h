// The time of this process's nodes.

#pragma once

#include <chrono>

#include "wire/effects.h"

namespace tkv {

// Returns the steady clock's time, which does not jump when the clock of the machine is set.
inline Time SteadyTime() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace tkv
