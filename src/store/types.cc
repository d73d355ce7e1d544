#include "store/types.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace tkv {
namespace {

using Kind = StoreType::Kind;

constexpr std::array<StoreType, 18> kTypes = {{
    {"local", Kind::kLocal},
    {"local_update_cpu", Kind::kLocal},
    {"local_allreduce_cpu", Kind::kLocal},
    {"device", Kind::kDevice},
    {"local_allreduce_device", Kind::kDevice},
    {"nccl", Kind::kGpus},
    {"dist", Kind::kDistributed},
    {"dist_sync", Kind::kDistributed},
    {"dist_async", Kind::kDistributed, true},
    {"dist_sync_device", Kind::kDistributed},
    {"dist_device_sync", Kind::kDistributed},
    {"dist_async_device", Kind::kDistributed, true},
    {"dist_device_async", Kind::kDistributed, true},
    {"p3", Kind::kDistributed},
    {"dist_p3", Kind::kDistributed},
    {"dist_sync_p3", Kind::kDistributed},
    {"dist_async_p3", Kind::kDistributed, true},
    {"p3store_dist", Kind::kDistributed},
}};

}  // namespace

std::span<const StoreType> StoreTypes() { return kTypes; }

const StoreType* FindStoreType(std::string_view name) {
  const auto is_same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  };
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const StoreType& type) {
    return std::equal(name.begin(), name.end(), type.name.begin(), type.name.end(), is_same);
  });
  return found == kTypes.end() ? nullptr : &*found;
}

}  // namespace tkv
