// The end of a store: CLOSE, after all that the user gave before it.

#pragma once

#include "client/client_core.h"

namespace tkv {

class ClosingStores {
 public:
  explicit ClosingStores(ClientCore* core) : core_(*core) {}

  // Closes each store whose earlier pushes are accepted and whose changes of the updater have
  // ended.  All other operations of the store fail then.
  void Advance();
  // Handles an answer to CLOSE, or an ERROR in its place.
  void OnAnswer(Op* op);

 private:
  bool IsInUse(uint32_t store, OpId close) const;
  void FailStore(uint32_t store, OpId close);
  void End(Op* close);

  ClientCore& core_;
};

}  // namespace tkv
