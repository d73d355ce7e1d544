// Starts the pushes and pulls of a store, and counts them.

#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dist/array_keeper.h"
#include "dist/saver.h"
#include "dist/store_core.h"
#include "dist/transfer_builder.h"
#include "dist/transfers.h"

namespace tkv {

class TransferCalls {
 public:
  // Makes the calls of a store.  All arguments must outlive them.
  TransferCalls(StoreCore* core, TransferBuilder* builder, Saver* saver)
      : core_(*core), builder_(*builder), saver_(*saver), arrays_(core) {}

  // Start a call and return it; the caller waits for its end.  A push may first start a save that
  // is due.
  //   verb        the first word of errors
  //   until_done  the call ends when the rounds of its keys are complete; otherwise when the
  //               servers have accepted its pushes
  //   is_async    the call goes on after the verb has returned, and marks its arrays as in use
  //   blocks      until the arrays are free, and as StoreCalls::Launch and ArrayKeeper::DetachSources
  //   throws      as TransferBuilder, and the error of an earlier call with one of the keys
  CallPtr Push(const std::string& verb, std::span<const PushItem> items, bool until_done);
  CallPtr Pull(const std::string& verb, std::span<const PullItem> items, bool is_async);
  CallPtr PushPull(const std::string& verb, std::span<const PushItem> items,
                   std::span<const PullItem> outs, bool is_async);
  CallPtr PushRows(const std::string& verb, std::span<const RowsPushItem> items,
                   std::span<const PushItem> whole, bool until_done);
  CallPtr PullRows(const std::string& verb, std::span<const RowsPullItem> items, bool is_async);

 private:
  using Pulled = std::vector<std::pair<RecordPtr, size_t>>;  // bytes of each key

  CallPtr StartPushes(const std::string& verb, const std::vector<PushSource>& sources,
                      bool until_done);
  CallPtr StartPulls(const std::string& verb, std::vector<PullTarget> targets, bool is_async);
  void NotePushed(const std::vector<PushSource>& sources);
  static Pulled PulledOf(const std::vector<PullTarget>& targets);
  void CountPulled(const Pulled& pulled);

  StoreCore& core_;
  TransferBuilder& builder_;
  Saver& saver_;
  ArrayKeeper arrays_;
};

}  // namespace tkv
