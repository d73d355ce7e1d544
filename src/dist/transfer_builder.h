// Checks the arrays of pushes and pulls, and gathers them for their way to the servers and back.

#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/push_compression.h"
#include "dist/row_encoder.h"
#include "dist/server_updater.h"
#include "dist/store_core.h"
#include "dist/transfers.h"

namespace tkv {

class TransferBuilder {
 public:
  // Makes the builder of a store.  All arguments must outlive it.
  TransferBuilder(StoreCore* core, ServerUpdater* updater, PushCompression* compression,
                  RowEncoder* rows)
      : core_(*core), updater_(*updater), compression_(*compression), rows_(*rows) {}

  // Return one source for each key of the call: the sum of the key's values.
  //   verb    the first word of errors
  //   blocks  until the values may be read
  //   throws  kNotFound, kInvalidArgument, kResourceExhausted, kDeadlineExceeded
  std::vector<PushSource> Sources(std::string_view verb, std::span<const PushItem> items);
  std::vector<PushSource> RowSources(std::string_view verb, std::span<const RowsPushItem> items);
  // Checks that no key of a call has both rows and whole values.
  //   throws  kInvalidArgument
  void CheckNoneIsBoth(std::string_view verb, std::span<const PushSource> sources,
                       std::span<const PushItem> whole) const;
  // Return the memory in which the value of each key arrives, and the outputs that get it.
  //   inputs          values that the same call pushes: they may share memory with outputs
  //   blocks, throws  as Sources
  std::vector<PullTarget> Targets(std::string_view verb, std::span<const PullItem> items,
                                  std::span<const PushItem> inputs);
  std::vector<PullTarget> RowTargets(std::string_view verb, std::span<const RowsPullItem> items);
  // Returns arrays without holes in host memory, and copies GPU arrays there.
  //   blocks  for each at most the patience
  std::vector<NDArray> AllOnHost(std::string_view verb, const KeyView& key,
                                 std::span<const NDArray* const> arrays);

 private:
  void GatherValues(std::string_view verb, std::span<const NDArray* const> values,
                    PushSource* source);
  void GatherFromGpus(std::string_view verb,
                      std::vector<std::pair<PushSource*, std::span<const NDArray* const>>> values);
  void AwaitSum(const GpuSums& gpus, size_t lot);

  StoreCore& core_;
  ServerUpdater& updater_;
  PushCompression& compression_;
  RowEncoder& rows_;
};

}  // namespace tkv
