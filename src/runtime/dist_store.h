// The KVStore of one worker of a job.

#pragma once

#include <memory>
#include <string>

#include "runtime/cluster.h"
#include "tkv/kvstore.h"

namespace tkv {

// Joins the job of `cluster`, which the store keeps alive, as worker `rank` (kNoRank: any free
// one).
//   blocks  until the head and all servers are there, at most the server patience
//   throws  kInvalidArgument, kUnavailable, kFailedPrecondition (all workers have joined)
std::unique_ptr<KVStore> MakeDistStore(std::string type, const StoreOptions& options,
                                       std::shared_ptr<Cluster> cluster, Rank rank);

}  // namespace tkv
