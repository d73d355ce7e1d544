// The training step that a push belongs to.

#pragma once

#include <cstdint>

namespace tkv {

// A training step pushes several keys, and a process may die between two of them.  For each
// synchronous key, servers keep the step of each worker's last push.  They report it to the
// worker's next process, which then pushes only the keys that are missing.
struct PushStep {
  uint32_t number = 0;  // from 1; 0: no step
  // Number of keys that the worker pushes in this step.  FormerStep gives 0 if rounds of the job
  // complete without dead workers, because no step is repeated there.
  uint32_t keys = 0;
  bool operator==(const PushStep&) const = default;
};

}  // namespace tkv
