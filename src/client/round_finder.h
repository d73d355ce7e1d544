// The search for the current round of a key, by a later life or after a push that has failed.

#pragma once

#include "client/client_core.h"

namespace tkv {

class RoundFinder {
 public:
  explicit RoundFinder(ClientCore* core) : core_(*core) {}

  // Begins a search.  The key's init or open, if one is under way, ends with it.  An asynchronous
  // key has no rounds: its open ends at once.
  void Start(const KeyId& id, ClientKey* key);
  void OnAnswer(const Outgoing& sent, const Message& reply);

 private:
  bool RepeatsPushes(const ClientKey& key) const;
  void AddChunk(const ChunkStatus& chunk, ClientKey* key) const;
  void SetRound(ClientKey* key) const;
  void NextPhase(const KeyId& id, ClientKey* key);
  void FailSearch(ClientKey* key, const Error& error);

  ClientCore& core_;
};

}  // namespace tkv
