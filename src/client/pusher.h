// Pushes, pulls, and the versions that both wait for.

#pragma once

#include "client/announcer.h"
#include "client/client_core.h"

namespace tkv {

class Pusher {
 public:
  Pusher(ClientCore* core, Announcer* announcer) : core_(*core), announcer_(*announcer) {}

  // Starts a push, a pushpull or a barrier.  Returns false if it has to wait.
  bool TryPush(const KeyId& id, ClientKey* key, Op* op);
  // Starts a pull, a wait or a cut.
  void StartPulls(const KeyId& id, ClientKey* key, Op* op);
  void OnPushAnswer(const Outgoing& sent, const Message& reply);
  void OnPullAnswer(const Outgoing& sent, const Message& reply);
  // Handles the answer to ClientCore::AskFor.
  void OnReadyAnswer(const Outgoing& sent, uint32_t server, const Message& reply);
  // Fails the operations that wait for rounds that lack a push of this worker.  These rounds cannot
  // complete before the user pushes again.
  void FailLostRounds();

 private:
  bool KnowsVersionsFor(uint64_t round, const KeyId& id, ClientKey* key);
  void QueuePush(const KeyId& id, ClientKey* key, Op* op, uint32_t chunk);
  void QueuePull(const KeyId& id, ClientKey* key, Op* op, uint32_t chunk, uint64_t min_version,
                 bool no_body);
  bool PullAgain(const KeyId& id, ClientKey* key, Op* op);
  void LosePush(const KeyId& id, ClientKey* key, uint64_t round, const Error& error);

  ClientCore& core_;
  Announcer& announcer_;
};

}  // namespace tkv
