#include "store/push_input.h"

#include "base/format.h"

namespace tkv {

void RefuseSum(std::string_view verb, const Entry& entry) {
  throw Fail(Code::kInvalidArgument, "{} {}: {} values cannot be summed or updated", verb,
             entry.key.view().ToString(), Name(entry.dtype()));
}

}  // namespace tkv
