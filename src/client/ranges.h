// The ranges of users' memory that receive the answers to pulls.

#pragma once

#include "client/operation.h"

namespace tkv {

// Returns the range of the pull's `out` that receives a chunk's answer.
codec::Range PulledRange(const KeyMeta& meta, const Operation::Pull& pull, uint32_t chunk);

}  // namespace tkv
