// The stand-in for builds without the headers of PMIx.

#include "base/format.h"
#include "bootstrap/pmix/pmix.h"

namespace tkv {

std::unique_ptr<PmixGroup> PmixGroup::Join() {
  throw Fail(Code::kUnimplemented,
             "mpirun or srun has started this process, and this build has no PMIx (libpmix-dev)");
}

bool PmixGroup::IsThere(std::string* why) {
  *why = "this build has no PMIx (libpmix-dev)";
  return false;
}

}  // namespace tkv
