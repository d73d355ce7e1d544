#include <algorithm>
#include <array>
#include <cctype>

#include "base/format.h"
#include "runtime/dist_store.h"
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

std::unique_ptr<KVStore> CreateDistributed(const std::string& name, const StoreOptions& options) {
  if (name == "p3" || name == "p3store_dist") {
    throw Fail(Code::kUnimplemented,
               "create '{}': this build has no priority scheduling; "
               "'dist_sync' gives the same values",
               name);
  }
  if (options.bootstrap.empty()) {
    throw Fail(Code::kFailedPrecondition,
               "create '{}': nothing says who else takes part.  Ways to start: bootstrap='self' "
               "makes a job of one worker; tensorkv.testing.cluster() makes one among threads",
               name);
  }
  if (options.bootstrap != "self") {
    throw Fail(Code::kInvalidArgument, "create '{}': bootstrap='{}'; there is 'self'", name,
               options.bootstrap);
  }
  ClusterOptions cluster;
  cluster.servers = options.servers;
  cluster.policy = PolicyFromName(options.on_death);
  cluster.log = options.log;
  return MakeDistStore(name, options, std::make_shared<Cluster>(cluster), 0);
}

}  // namespace

std::unique_ptr<KVStore> KVStore::Create(std::string_view type, const StoreOptions& options) {
  std::string name(type);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (Has(kLocalTypes, name)) return MakeLocalStore(name, options);
  if (Has(kDistributedTypes, name)) return CreateDistributed(name, options);
  if (name == "nccl") {
    throw Fail(Code::kUnimplemented,
               "create 'nccl': this build has no GPU support; 'device' sums on the host");
  }
  throw Fail(Code::kInvalidArgument, "create '{}': no such type; there are {}", type,
             fmt::join(kLocalTypes, ", "));
}

}  // namespace tkv
