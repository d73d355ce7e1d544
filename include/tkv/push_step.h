// The training step that a push belongs to.

#pragma once

#include <cstdint>

namespace tkv {

// A step of training pushes several keys, and a process may die between two of them.  Servers keep the
// step of each worker's last push of a synchronous key, and tell it to the worker's next process, which
// then pushes only the keys that are missing.
struct PushStep {
  uint32_t number = 0;  // from 1; 0: of no step
  // How many keys the worker pushes in this step.  FormerStep gives 0 in a job whose rounds go on without
  // dead workers: no step is repeated there.
  uint32_t keys = 0;
  bool operator==(const PushStep&) const = default;
};

}  // namespace tkv
