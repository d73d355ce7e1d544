// The rounds of a shard, which the pushes of workers complete, and the ranks that abstain: PUSH,
// ABSTAIN.
//
// Uses Replies, Controls and Pulls.

#pragma once

#include <optional>

#include "server/pulls.h"

namespace tkv {

// The parts of a push beside its values.
struct PushExtra {
  Scalars scalars;
  PushStep step;
  std::optional<Error> failure;  // of the sender of a barrier
};

class Rounds {
 public:
  // Makes the rounds of a shard, from the shard's other parts.
  Rounds(ShardCore* core, Replies* replies, Controls* controls, Pulls* pulls)
      : core_(*core), replies_(*replies), controls_(*controls), pulls_(*pulls) {}

  // Returns true if the body of a PUSH deserves memory.
  bool Admits(const Message& message) const;
  void OnPush(Session* session, Message& message, Effects* effects);
  void OnAbstain(Session* session, const Message& message, Effects* effects);
  // Completes the rounds of a chunk that lack no push any more.
  void Complete(const ChunkId& id, StoredKey* key, Chunk* chunk, Effects* effects);

 private:
  // Makes the key of a barrier.  Returns false if it has answered with an error instead.
  bool MakeBarrier(Session* session, const Message& push, Effects* effects);
  // Returns the reason why a push may not join its round, if there is one.
  std::optional<Error> JudgeRound(const Message& push, Rank rank, const StoredKey& key,
                                  const Chunk& chunk) const;
  void OnPushSync(Session* session, Message& message, StoredKey* key, Chunk* chunk, PushExtra extra,
                  Effects* effects);
  void OnPushAsync(Session* session, Message& message, StoredKey* key, Chunk* chunk,
                   const Scalars& scalars, Effects* effects);
  // Returns true if round version + 1 is complete.  The push of `arriving` counts as arrived.
  bool IsComplete(const StoredKey& key, const Chunk& chunk, Rank arriving) const;
  // Calls the listeners with a version that has just completed.
  void NotifyListeners(const ChunkId& id, const Chunk& chunk) const;
  // Throws std::bad_alloc if a listener wants the push to find no memory.
  void CheckNotRefused(const ChunkId& id) const;

  ShardCore& core_;
  Replies& replies_;
  Controls& controls_;
  Pulls& pulls_;
};

}  // namespace tkv
