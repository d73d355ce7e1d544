#include "store/small_assigns.h"

#include <algorithm>

#include "update/parallel.h"
#include "update/tile_driver.h"

namespace tkv {
namespace {

constexpr size_t kManyKeys = 1024;
constexpr size_t kSmallKeyBytes = size_t{64} << 10;

}  // namespace

bool SmallAssigns::Suit(const PushInput& input) {
  const Claim& claim = input.claim;
  const Sources& sources = input.sources;
  if (input.count < kManyKeys || claim.updater->optimizer != nullptr || claim.has_rows ||
      claim.has_gpus || !sources.bases.empty() || claim.largest_bytes > kSmallKeyBytes) {
    return false;
  }
  if (sources.pointers.size() <= input.count) return true;
  size_t most = 1;
  for (size_t g = 0; g < input.count; ++g) most = std::max(most, sources.of(g).size());
  return most <= kFewSources;
}

void SmallAssigns::Prepare() const {
  if (input_.sources.pointers.size() <= input_.count) return;
  for (size_t g = 0; g < input_.count; ++g) {
    CheckSum(input_.claim.verb, *input_.claim.entries[g], input_.sources.of(g).size());
  }
}

void SmallAssigns::Run() const {
  const Claim& claim = input_.claim;
  RunSmallJobs(input_.count, 2 * claim.pushed_bytes + claim.pulled_bytes,
               ThreadsFor(claim.options.threads), [&](size_t g) {
                 const NDArray& value = claim.entries[g]->value;
                 TileJob job;
                 job.dtype = value.dtype();
                 job.count = static_cast<size_t>(value.size());
                 job.sources = input_.sources.of(g);
                 job.value = value.data();
                 if (input_.outputs != nullptr) job.outputs = input_.outputs->of(g);
                 return job;
               });
}

}  // namespace tkv
