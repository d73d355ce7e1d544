// The store of one process, on host memory.

#pragma once

#include <memory>
#include <string>

#include "tkv/kvstore.h"

namespace tkv {

// `type` is the name that the store gives back.
std::unique_ptr<KVStore> MakeLocalStore(std::string type, const StoreOptions& options);

}  // namespace tkv
