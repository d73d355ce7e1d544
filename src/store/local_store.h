// The store of one process, on host memory.

#pragma once

#include <memory>
#include <string>

#include "tkv/kvstore.h"

namespace tkv {

// Returns a new store of one process.  `type` is the name that its type() returns.
std::unique_ptr<KVStore> MakeLocalStore(std::string type, const StoreOptions& options);

}  // namespace tkv
