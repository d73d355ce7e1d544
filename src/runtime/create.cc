#include <algorithm>
#include <array>
#include <cctype>

#include "base/format.h"
#include "store/local_store.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

constexpr std::array<std::string_view, 5> kLocalTypes = {
    "local", "local_update_cpu", "local_allreduce_cpu", "device", "local_allreduce_device"};
constexpr std::array<std::string_view, 9> kDistributedTypes = {"dist",
                                                               "dist_sync",
                                                               "dist_async",
                                                               "dist_sync_device",
                                                               "dist_device_sync",
                                                               "dist_async_device",
                                                               "dist_device_async",
                                                               "p3",
                                                               "p3store_dist"};

bool Has(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::unique_ptr<KVStore> KVStore::Create(std::string_view type, const StoreOptions& options) {
  std::string name(type);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (Has(kLocalTypes, name)) return MakeLocalStore(name, options);
  if (Has(kDistributedTypes, name)) {
    throw Fail(Code::kUnimplemented,
               "create '{}': distributed stores are not in this build yet; it has {}", type,
               fmt::join(kLocalTypes, ", "));
  }
  if (name == "nccl") {
    throw Fail(Code::kUnimplemented,
               "create 'nccl': this build has no GPU support; 'device' sums on the host");
  }
  throw Fail(Code::kInvalidArgument, "create '{}': no such type; there are {}", type,
             fmt::join(kLocalTypes, ", "));
}

}  // namespace tkv
