// The creation, the search and the deletion of keys.

#pragma once

#include "client/client_core.h"
#include "client/round_finder.h"

namespace tkv {

class KeyMaker {
 public:
  KeyMaker(ClientCore* core, RoundFinder* finder) : core_(*core), finder_(*finder) {}

  // Starts an init or an open.
  void StartInit(const KeyId& id, ClientKey* key, Op* op);
  // Handles an answer to INIT, or to the DESCRIBE of an init or an open.
  void OnInitAnswer(const Outgoing& sent, const Message& reply);
  void StartDelete(const KeyId& id, ClientKey* key, Op* op);

 private:
  void StartMaking(const KeyId& id, ClientKey* key, Op* op);
  void QueueInits(const KeyId& id, ClientKey* key, Op* op);

  ClientCore& core_;
  RoundFinder& finder_;
};

}  // namespace tkv
