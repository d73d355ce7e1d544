// The types of stores that KVStore::Create makes, by name.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tkv {

struct StoreType {
  enum class Kind : uint8_t {
    kLocal,        // one process
    kDevice,       // the same, which sums on GPUs and may compress what devices give it
    kGpus,         // the same for values and outputs of GPUs alone
    kDistributed,  // several workers
  };
  std::string_view name;
  Kind kind = Kind::kLocal;
  bool is_async = false;  // of keys whose init says nothing else
};

std::span<const StoreType> StoreTypes();
// In any case; null where there is no such type.
const StoreType* FindStoreType(std::string_view name);

}  // namespace tkv
