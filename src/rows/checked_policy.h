// The rules for the policy of a table.

#pragma once

#include "tkv/dtype.h"
#include "tkv/rows.h"

namespace tkv {

// Returns the policy that a table uses: with notes if the other options need them.
//   throws  kInvalidArgument  a policy that is not possible
RowPolicy CheckedPolicy(const RowPolicy& policy, DType dtype);

}  // namespace tkv
