// The pulls of a shard, which wait until their chunk has the version that they ask for: PULL,
// CANCEL.
//
// Uses Replies and Controls.

#pragma once

#include <string>

#include "server/controls.h"

namespace tkv {

class Pulls {
 public:
  // Makes the pulls of a shard, from the shard's other parts.
  Pulls(ShardCore* core, Replies* replies, Controls* controls)
      : core_(*core), replies_(*replies), controls_(*controls) {}

  // Returns true if the ids of a PULL deserve memory.
  bool Admits(const Session& session, const Message& message) const;
  // Answers a PULL of the newest version, or lets it wait.
  void OnPull(Session* session, const Message& message, Effects* effects);
  // Cancels a waiting PULL or DESCRIBE.  The message has its key and chunk, so that no search is
  // needed.
  void OnCancel(Session* session, const Message& message, Effects* effects);
  // Answers the waiting pulls of a chunk that need not wait any more, or wait in vain.
  void AnswerParked(const ChunkId& id, const StoredKey& key, Chunk* chunk, Effects* effects);

 private:
  // Sends the value of a chunk, or keeps a cut of it.
  void SendValue(Session* session, const ChunkId& id, const StoredKey& key, const Chunk& chunk,
                 const ParkedPull& pull, Effects* effects);
  // Returns the reason why the round of a pull can never complete, or an empty text.
  std::string WhyNever(const StoredKey& key, const Chunk& chunk, const ParkedPull& pull) const;

  ShardCore& core_;
  Replies& replies_;
  Controls& controls_;
};

}  // namespace tkv
