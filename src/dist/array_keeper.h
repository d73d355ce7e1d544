// Protects the arrays of calls whose verb has returned.  A writer of an array waits for a push that
// still reads it, and a reader for a pull that still writes to it.

#pragma once

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "dist/store_core.h"
#include "dist/transfers.h"

namespace tkv {

// Thread-safe.
class ArrayKeeper {
 public:
  // Makes the keeper of a store, which must outlive it.
  explicit ArrayKeeper(StoreCore* core) : core_(*core) {}

  // Makes the sources independent of the caller, who may write to them after a push has returned.
  // Arrays of this library stay marked as in use until they are read.  Other arrays are copied,
  // unless the servers accept the push soon.  If the copies would exceed the window, it waits
  // first.
  //   blocks  for the servers to accept the push, at most the patience; without memory for copies
  //           once more as long
  void DetachSources(const CallPtr& call, const std::vector<PushSource>& sources);
  // Marks the arrays of an asynchronous call that was launched, so that their users wait for it.
  // If that fails, the caller gets no ticket, and the call is cancelled.
  void MarkArrays(const CallPtr& call, const std::vector<PushSource>& sources,
                  const std::vector<NDArray>& outputs);

 private:
  static std::optional<size_t> MarkOwnArrays(const CallPtr& call,
                                             const std::vector<PushSource>& sources);
  void Copy(const CallPtr& call, size_t bytes);
  bool GoesOnWithCopies(const CallPtr& call, size_t bytes);
  size_t ForgetAcceptedCopies();

  StoreCore& core_;
  // Guards the member below.  Never held during a wait.
  std::mutex mutex_;
  // Calls that hold copies of their sources, and the bytes of these.
  std::vector<std::pair<CallPtr, size_t>> copied_;
};

}  // namespace tkv
