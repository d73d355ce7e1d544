// The types of stores that KVStore::Create can make, by name.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tkv {

// A name that KVStore::Create accepts, and the kind of store that it makes.
struct StoreType {
  enum class Kind : uint8_t {
    kLocal,        // one process
    kDevice,       // one process; sums on GPUs and can compress the values of devices
    kGpus,         // like kDevice, but values and outputs have to be on GPUs
    kDistributed,  // several workers
  };
  std::string_view name;
  Kind kind = Kind::kLocal;
  bool is_async = false;  // default mode of keys
};

std::span<const StoreType> StoreTypes();
// Returns the type of that name, ignoring case; null if there is none.
const StoreType* FindStoreType(std::string_view name);

}  // namespace tkv
